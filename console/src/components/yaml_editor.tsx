/** An editor for workload files: highlighting, completion and checks from the JSON Schema. Loaded when it is shown. */

import { autocompletion, closeBrackets, completionKeymap, type CompletionContext } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { Annotation, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import type { Schema } from "../lib/json_schema";
import { type Problem, suggestions } from "../lib/manifest";

interface Props {
  text: string;
  problems: Problem[];
  schema: Schema | undefined;
  onChange: (text: string) => void;
}

const FromOutside = Annotation.define<boolean>();
const COLOURS = HighlightStyle.define([
  { tag: tags.definition(tags.propertyName), color: "var(--accent)" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: tags.comment, color: "var(--faint)" },
  { tag: tags.punctuation, color: "var(--faint)" },
]);
const LOOK = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--surface)", color: "var(--text)", fontSize: "12.5px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--faint)", border: "0" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--hover) 60%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft)" },
  ".cm-tooltip": { border: "1px solid var(--line)", borderRadius: "8px", backgroundColor: "var(--raised)", color: "var(--text)", boxShadow: "var(--shadow)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--text)" },
  ".cm-tooltip.cm-completionInfo": { padding: "8px 12px", maxWidth: "34em" },
  ".cm-diagnostic": { padding: "5px 10px" },
});

export default function YamlEditor({ text, problems, schema, onChange }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef({ onChange, schema });
  latest.current = { onChange, schema };

  // biome-ignore lint/correctness/useExhaustiveDependencies: the editor is made once; later texts are changes of it.
  useEffect(() => {
    if (!frame.current) return;
    const complete = (context: CompletionContext) => {
      const known = latest.current.schema;
      const before = context.state.sliceDoc(0, context.pos);
      const found = known && (context.explicit || /[\w\s.-]$/.test(before)) ? suggestions(known, before) : null;
      if (!found || (!context.explicit && found.from === context.pos && !/: $/.test(before))) return null;
      return { from: found.from, options: found.options.map((option) => ({ ...option, type: "property" })), validFor: /^[\w.-]*$/ };
    };
    const made = new EditorView({
      parent: frame.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          highlightActiveLine(),
          indentOnInput(),
          indentUnit.of("  "),
          closeBrackets(),
          yaml(),
          syntaxHighlighting(COLOURS),
          autocompletion({ override: [complete] }),
          lintGutter(),
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": "Workload as YAML" }),
          LOOK,
          EditorView.updateListener.of((update) => {
            if (update.docChanged && !update.transactions.some((each) => each.annotation(FromOutside))) {
              latest.current.onChange(update.state.doc.toString());
            }
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, []);

  useEffect(() => {
    const editor = view.current;
    if (!editor || editor.state.doc.toString() === text) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text }, annotations: FromOutside.of(true) });
  }, [text]);

  useEffect(() => {
    const editor = view.current;
    if (!editor) return;
    const length = editor.state.doc.length;
    const marks: Diagnostic[] = problems.map(({ from, to, message }) => ({
      from: Math.min(from, length),
      to: Math.min(Math.max(to, from), length),
      severity: "error",
      message,
    }));
    editor.dispatch(setDiagnostics(editor.state, marks));
  }, [problems]);

  return <div className="editor" ref={frame} />;
}
