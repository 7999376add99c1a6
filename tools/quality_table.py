#!/usr/bin/env python3
"""The quality table of docs/quantization.md: one row per model file, measured with `vesta score`.

    tools/quality_table.py --reference native.gguf [--label NAME] a.gguf b.gguf ...

The reference is scored first and its predictions are kept as the base of all divergences. The text is the pocket's
validation set (token ids in the test data) unless --text is given. Every measurement is kept in --work, keyed by the
file's size and time, so that a second call only measures what is new. --columns adds columns from elsewhere, for example
bytes per decoded token out of `vesta quantize --dry-run --json`: a JSON object {"file name": {"column": "value"}}.

Standard library only.
"""
import argparse
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def validation_ids(n_token):
    path = os.path.join(ROOT, "tests/data/pocket-v0/valid_nll.safetensors")
    with open(path, "rb") as f:
        data = f.read()
    (size,) = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8 : 8 + size])["ids"]["data_offsets"]
    ids = struct.unpack_from(f"<{(end - begin) // 4}i", data, 8 + size + begin)
    return ids[:n_token] if n_token else ids


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"quality_table: exit code {done.returncode} from: {' '.join(command)}")
    return json.loads(done.stdout)


class Measurer:
    def __init__(self, args):
        self.args = args
        os.makedirs(args.work, exist_ok=True)
        if args.text:
            self.text = ["--text", args.text] + (["--specials"] if args.specials else [])
            if args.tokens:
                self.text += ["--max-tokens", str(args.tokens)]
            key = args.text + str(os.path.getmtime(args.text))
        else:
            ids = validation_ids(args.tokens)
            path = os.path.join(args.work, f"valid-{len(ids)}.ids")
            with open(path, "w") as f:
                f.write(" ".join(map(str, ids)) + "\n")
            self.text = ["--ids", path]
            key = path
        self.text += ["--ctx", str(args.ctx), "--stride", str(args.stride or args.ctx)]
        # What a kept result depends on, besides the model: the program, the text and its windows, the cases.
        self.key = "|".join([key, *self.text, str(os.path.getmtime(args.vesta)), args.manifest, str(args.limit), self.stamp(args.reference)])

    @staticmethod
    def stamp(path):
        s = os.stat(path)
        return f"{os.path.abspath(path)}:{s.st_size}:{s.st_mtime_ns}"

    def measure(self, path):
        digest = hashlib.sha256((self.key + self.stamp(path)).encode()).hexdigest()[:16]
        kept = os.path.join(self.args.work, digest + ".json")
        if os.path.exists(kept):
            with open(kept) as f:
                return json.load(f)
        started = time.monotonic()
        a = self.args
        score = [a.vesta, "score", "-m", path, "--json", "--quiet"] + (["--threads", str(a.threads)] if a.threads else [])
        base = os.path.join(a.work, hashlib.sha256(self.key.encode()).hexdigest()[:16] + ".base")
        if not os.path.exists(base):  # the reference comes first
            assert path == a.reference
            run(score + self.text + ["--save-base", base])
        row = {"text": run(score + self.text + ["--base", base])}
        row["inspect"] = run([a.vesta, "inspect", path, "--json"])
        row["inspect"].pop("tensors", None)
        row["inspect"].pop("metadata", None)
        if a.manifest:
            limit = ["--limit", str(a.limit)] if a.limit else []
            out = os.path.join(a.work, digest + ".jsonl")
            row["cases"] = run(score + ["--manifest", a.manifest, "--greedy", "--out", out, "--force"] + limit)
            row["cases_file"] = out
        row["seconds"] = time.monotonic() - started
        with tempfile.NamedTemporaryFile("w", dir=a.work, delete=False) as f:
            json.dump(row, f)
        os.replace(f.name, kept)
        return row


def cells(name, row, extra):
    text, d = row["text"], row["text"]["divergence"]
    half = (text["ppl"]["high"] - text["ppl"]["low"]) / 2
    out = {
        "file": name,
        "bytes": f"{row['inspect']['file']['bytes']:,}".replace(",", " "),
        "bits/weight": f"{row['inspect']['bits_per_weight']:.3f}",
    }
    out.update(extra)
    out["PPL ± 95 %"] = f"{text['ppl']['value']:.4f} ± {half:.3f}"
    # The paired ratio tells files apart where the intervals of the perplexities overlap completely.
    ratio = d["ppl_ratio"]
    out["PPL / ref"] = f"{ratio['value']:.4f} [{ratio['low']:.4f}, {ratio['high']:.4f}]"
    out["KLD mean"] = f"{d['kl']['mean']:.5f}"
    out["KLD 99 %"] = f"{d['kl']['p99']:.4f}"
    out["top-1"] = f"{100 * d['same_top1']['mean']:.2f} %"
    if "cases" in row:
        total = row["cases"]["kinds"][0]
        out["cases NLL"] = f"{total['case_nll']['mean']:.4f}"
        out["accuracy"] = f"{100 * total['accuracy']:.1f} % ({total['correct']}/{total['judged']})"
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="model files; PATH=LABEL names the row")
    parser.add_argument("--reference", required=True, help="model file (or PATH=LABEL) all others are compared with; also the first row")
    parser.add_argument("--vesta", default=os.path.join(ROOT, "build/release/vesta"))
    parser.add_argument("--text", help="a text file instead of the validation tokens")
    parser.add_argument("--specials", action="store_true", help="markers in --text are special tokens")
    parser.add_argument("--tokens", type=int, default=0, help="only the first tokens of the text")
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--stride", type=int, default=0, help="default: --ctx, no token computed twice")
    parser.add_argument("--manifest", default=os.path.join(ROOT, "tests/data/pocket_eval.jsonl"), help="'' leaves the cases out")
    parser.add_argument("--limit", type=int, default=0, help="cases of each kind; 0: all")
    parser.add_argument("--columns", help="JSON file: {file name or label: {column: value}}")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "vesta-quality"), help="where results are kept")
    parser.add_argument("--json", help="also write everything that was measured to this file")
    args = parser.parse_args()
    args.reference, _, reference_label = args.reference.partition("=")
    extra = {}
    if args.columns:
        with open(args.columns) as f:
            extra = json.load(f)
    measurer = Measurer(args)
    rows, all_rows = [], {}
    models = [m.partition("=")[::2] for m in args.models]
    for path, label in [(args.reference, reference_label)] + [m for m in models if m[0] != args.reference]:
        label = label or os.path.basename(path)
        row = measurer.measure(path)
        all_rows[label] = row
        rows.append(cells(label, row, extra.get(label, extra.get(os.path.basename(path), {}))))
        print(f"{label}: {row['seconds']:.0f} s", file=sys.stderr)
    names = list(dict.fromkeys(name for row in rows for name in row))
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" + "---:|" * (len(names) - 1))
    for row in rows:
        print("| " + " | ".join(row.get(name, "") for name in names) + " |")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(all_rows, f, indent=1)


if __name__ == "__main__":
    main()
