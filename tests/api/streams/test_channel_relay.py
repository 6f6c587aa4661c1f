"""Channels on their way through the server: between one agent and those who opened them, and over with either."""

from uuid import UUID

import pytest

from mooring.api.agents.agent_session import AgentSession
from mooring.api.streams.channel_relay import Channel, TaskChannels
from mooring.model.errors import InvalidInput, NotFound, Unavailable
from mooring.wire.agents.agent_protocol import (
    CHANNEL_WINDOW,
    ChannelData,
    ChannelEnd,
    ChannelOpen,
    ChannelWindow,
    Exec,
    FromServer,
)

TASK, COMMAND = UUID(int=3), Exec(command=["id"])


class Agent:
    """The stream of an agent, with the messages that it received."""

    def __init__(self, node: int, protocol: int = 3) -> None:
        self.received: list[FromServer] = []
        self.session = AgentSession(UUID(int=node), f"n{node}", UUID(int=2), "hash", self._send, protocol=protocol)

    @property
    def channel_id(self) -> UUID:
        return next(message.channel_id for message in self.received if isinstance(message, ChannelOpen))

    async def _send(self, message: FromServer) -> None:
        self.received.append(message)


async def test_an_agent_speaks_in_the_channels_of_its_own_tasks_only():
    channels, own, other = TaskChannels(), Agent(1), Agent(2)
    async with channels.open(own.session, TASK, None, COMMAND) as channel:
        for agent, data in ((other, b"forged"), (own, b"true")):
            channels.take(agent.session, ChannelData(channel_id=own.channel_id, data=data))
        channels.take(other.session, ChannelEnd(channel_id=own.channel_id, exit_code=0))
        channels.end(other.session)
        assert await channel.side.read() == (b"true", False)
        assert channel.end_message is None
    assert own.received[-1] == ChannelEnd(channel_id=own.channel_id)


@pytest.mark.parametrize(
    ("code", "kind"), [("not-found", NotFound), ("files-refused", InvalidInput), ("port-not-answering", Unavailable)]
)
async def test_a_refusal_of_an_agent_becomes_the_matching_error(code: str, kind: type[Exception]):
    channels, agent = TaskChannels(), Agent(1)
    async with channels.open(agent.session, TASK, None, COMMAND) as channel:
        channels.take(agent.session, ChannelEnd(channel_id=agent.channel_id, code=code, message="no"))
        with pytest.raises(kind):
            await channel.opened()


async def test_it_ends_with_the_agent_with_the_server_and_with_an_agent_that_sends_too_much():
    async def broken(channels: TaskChannels, agent: Agent, channel: Channel) -> Unavailable:
        channels.take(agent.session, ChannelWindow(channel_id=agent.channel_id, bytes=0))
        await channel.opened()
        match len(found):
            case 0:
                channels.end(agent.session)
            case 1:
                channels.close_channels()
            case _:
                data = bytes(CHANNEL_WINDOW)
                for _ in range(2):
                    channels.take(agent.session, ChannelData(channel_id=agent.channel_id, data=data))
        await channel.side.ended.wait()
        assert isinstance(channel.problem, Unavailable)
        return channel.problem

    found: list[str] = []
    for _ in range(3):
        channels, agent = TaskChannels(), Agent(1)
        async with channels.open(agent.session, TASK, None, COMMAND) as channel:
            found.append((await broken(channels, agent, channel)).message)
    assert found == [
        "the connection to the task's node was lost",
        "the server is stopping; open the channel again",
        "the task's node sent more than the receiver allows",
    ]


async def test_agents_that_are_not_here_or_too_old_are_not_asked():
    for agent, code in ((None, "agent-unreachable"), (Agent(1, protocol=2), "agent-outdated")):
        with pytest.raises(Unavailable, match=code):
            async with TaskChannels().open(agent.session if agent else None, TASK, None, COMMAND):
                pass
        assert agent is None or agent.received == []
