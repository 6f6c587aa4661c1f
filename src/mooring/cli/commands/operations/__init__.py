"""Commands for operators: servers, agents, the database, leadership and the audit."""
