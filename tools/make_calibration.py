#!/usr/bin/env python3
"""Writes calibration/calibration.txt: the text `vesta imatrix` runs a model over by default (calibration/README.md).

    tools/make_calibration.py [--check] [--prose FILE [--held-out FILE...]]

Prompts are rendered as DeepSeek V4 chats with their answers, with and without thinking, with and without tools; code
and documents are excerpts of this repository; prose is written for the purpose or in the public domain. Everything comes
from this file, tests/data/chat_render.jsonl (the official tool section) and the repository itself, drawn with a fixed
seed. --prose adds excerpts of a public-domain book (the committed file was made with Manzoni's I promessi sposi).

--check only looks: that the renderer agrees with the official vectors, that no user message of the test set
(tests/data/pocket_eval.jsonl) is in the text, and that the committed file keeps to its size.
"""
import argparse
import json
import pathlib
import random
import re
import sys

from calibration_text import (CODE_QUESTIONS, COUNTRIES, DEFINITIONS, EXPLANATIONS, ITALIAN, NAMES, PUBLIC_DOMAIN,
                              STORIES, SYSTEMS, THINGS)

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "calibration" / "calibration.txt"
MAX_BYTES = 400_000

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"


# --- rendering ----------------------------------------------------------------------------------------------------

def official_cases():
    for line in (ROOT / "tests/data/chat_render.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def tool_section_parts():
    """What stands before and after the schemas in the official tool section, from an official vector."""
    case = next(c for c in official_cases() if c["name"] == "tools_system_chat")
    text = case["rendered"]
    before = text[text.index("\n\n## Tools"):text.index("### Available Tool Schemas\n\n") + len("### Available Tool Schemas\n\n")]
    after = text[text.index("\n\nYou MUST strictly follow"):text.index(USER)]
    return before, after


TOOLS_BEFORE, TOOLS_AFTER = tool_section_parts()


def render_call(name, arguments):
    lines = [f'<｜DSML｜invoke name="{name}">']
    for key, value in arguments.items():
        is_text = isinstance(value, str)
        text = value if is_text else json.dumps(value, ensure_ascii=False)
        lines.append(f'<｜DSML｜parameter name="{key}" string="{"true" if is_text else "false"}">{text}</｜DSML｜parameter>')
    return "\n".join(lines + ["</｜DSML｜invoke>"])


def render(turns, think, system="", tools=()):
    """turns: dicts with role user, tool or assistant; an assistant's may have reasoning and calls [(name, arguments)].
    A text that ends with a user's or tool's turn ends with the assistant's prefix, as a prompt does."""
    out = BOS + system
    if tools:
        out += TOOLS_BEFORE + "\n".join(json.dumps(t, ensure_ascii=False) for t in tools) + TOOLS_AFTER
    last_user = max((i for i, t in enumerate(turns) if t["role"] == "user"), default=-1)
    for i, turn in enumerate(turns):
        if turn["role"] == "user":
            out += USER + turn["content"]
        elif turn["role"] == "tool":
            after_tool = turns[i - 1]["role"] == "tool"
            out += ("\n\n" if after_tool else USER) + f"<tool_result>{turn['content']}</tool_result>"
        else:
            # Reasoning of turns before the last question is forgotten, unless tools are in play.
            kept = think and (bool(tools) or i > last_user)
            out += ASSISTANT + (f"<think>{turn.get('reasoning', '')}</think>" if kept else "</think>") + turn["content"]
            if turn.get("calls"):
                calls = "\n".join(render_call(*c) for c in turn["calls"])
                out += f"\n\n<｜DSML｜tool_calls>\n{calls}\n</｜DSML｜tool_calls>"
            out += EOS
    if turns[-1]["role"] != "assistant":
        out += ASSISTANT + ("<think>" if think else "</think>")
    return out


VERIFIED = ["user_only_chat", "user_only_thinking", "system_user_chat", "system_user_thinking", "multi_turn_thinking_dropped",
            "ends_with_assistant_chat", "tools_system_chat", "tools_system_thinking", "tool_roundtrip_thinking",
            "tool_roundtrip_chat", "tool_roundtrip_finished", "tool_roundtrip_next_user", "multi_calls_in_order"]


def check_renderer():
    cases = {c["name"]: c for c in official_cases()}
    for name in VERIFIED:
        case, turns, system, tools = cases[name], [], "", []
        for m in case["messages"]:
            if m["role"] == "system":
                system = m["content"]
                tools = [t["function"] for t in m.get("tools", [])]
                continue
            turn = {"role": m["role"], "content": m.get("content") or "", "reasoning": m.get("reasoning_content") or ""}
            turn["calls"] = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in m.get("tool_calls", [])]
            turns.append(turn)
        got = render(turns, case["mode"] == "thinking", system, tools)
        if got != case["rendered"]:
            sys.exit(f"make_calibration: {name} is not rendered as the official encoder does:\n{got!r}\n{case['rendered']!r}")


def user(text):
    return {"role": "user", "content": text}


def assistant(text, reasoning="", calls=()):
    return {"role": "assistant", "content": text, "reasoning": reasoning, "calls": list(calls)}


def result(text):
    return {"role": "tool", "content": text}


# --- chats: each maker returns question, reasoning, answer --------------------------------------------------------

def fact(rng):
    name, capital, continent, currency, language, known = rng.choice(COUNTRIES)
    return rng.choice([
        (f"Tell me the capital of {name}.", f"The capital of {name} is {capital}.", f"The capital of {name} is {capital}."),
        (f"On which continent do I find {name}?", f"{name} lies in {continent}.", f"{name} is in {continent}."),
        (f"I travel to {name}. What money do I need there?", f"They pay with the {currency}.", f"In {name} people pay with the {currency}."),
        (f"Which language is spoken by most people in {name}?", f"Mostly {language}.", f"Most people in {name} speak {language}."),
        (f"What is {name} known for?", f"I think of {known}.", f"{name} is known for {known}."),
        (f"{capital} is the capital of which country?", f"That is {name}.", f"{capital} is the capital of {name}."),
        (f"Give me three facts about {name}.", f"Capital, continent, currency.",
         f"1. Its capital is {capital}.\n2. It lies in {continent}.\n3. Its currency is the {currency}."),
    ])


def definition(rng):
    word, kind, meaning, example = rng.choice(DEFINITIONS)
    return rng.choice([
        (f"What does the {kind} \"{word}\" mean?", f"I explain the {kind} {word}.", f"{word.capitalize()}: {meaning}."),
        (f"Use \"{word}\" in a sentence.", f"{word} means {meaning}.", example),
        (f"Please explain {word} to a child and give an example.", f"Simple words: {meaning}.",
         f"{word.capitalize()} means {meaning}. For example: {example}"),
    ])


def arithmetic(rng):
    a, b = rng.randint(12, 999), rng.randint(12, 999)
    kind = rng.choice(["add", "subtract", "multiply", "compare", "story"])
    if kind == "add":
        return f"Add {a} and {b}.", f"{a} + {b}: tens and ones. {a} + {b // 10 * 10} = {a + b // 10 * 10}, plus {b % 10} is {a + b}.", f"{a} + {b} = {a + b}"
    if kind == "subtract":
        a, b = max(a, b), min(a, b)
        return f"Take {b} away from {a}.", f"{a} - {b // 10 * 10} = {a - b // 10 * 10}, minus {b % 10} is {a - b}.", f"{a} - {b} = {a - b}"
    if kind == "multiply":
        b = rng.randint(2, 9)
        parts = " + ".join(str(int(d) * 10 ** i * b) for i, d in enumerate(reversed(str(a))))
        return f"How much is {a} times {b}?", f"By digits: {parts} = {a * b}.", f"{a} × {b} = {a * b}"
    if kind == "compare":
        return f"Which is larger, {a} or {b}?", f"Compare {a} with {b}.", f"{max(a, b)} is larger." if a != b else "They are equal."
    n, m, who, thing = rng.randint(3, 20), rng.randint(2, 12), rng.choice(NAMES), rng.choice(THINGS)
    return (f"{who} buys {n} boxes with {m} {thing} in each and gives 2 {thing} away. How many are left?",
            f"{n} boxes of {m} are {n * m}. Two are given away: {n * m} - 2 = {n * m - 2}.", f"{who} has {n * m - 2} {thing} left.")


def list_task(rng):
    words = rng.sample(THINGS, rng.randint(4, 7))
    joined = ", ".join(words)
    return rng.choice([
        (f"Put these in alphabetical order: {joined}.", f"By first letter: {', '.join(sorted(words))}.", ", ".join(sorted(words))),
        (f"Turn this list around: {joined}.", f"From the last to the first.", ", ".join(reversed(words))),
        (f"Which of these words is the longest: {joined}?", "I count letters: " + ", ".join(f"{w} {len(w)}" for w in words) + ".",
         max(words, key=len)),
        (f"Make a numbered list of {joined}.", f"{len(words)} items.", "\n".join(f"{i}. {w}" for i, w in enumerate(words, 1))),
        (f"How many words are in this list: {joined}?", "I count them one by one.", f"There are {len(words)} words."),
        (f"Write these words in capital letters: {joined}.", "Each word in capitals.", joined.upper()),
    ])


def structured(rng):
    who, age, thing, place = rng.choice(NAMES), rng.randint(18, 80), rng.choice(THINGS), rng.choice(COUNTRIES)[1]
    record = {"name": who, "age": age, "city": place, "wants": [thing, rng.choice(THINGS)], "member": rng.random() < 0.5}
    text = f"{who} is {age} years old, comes from {place} and asked for {record['wants'][0]} and {record['wants'][1]}. " + (
        "The person is a member." if record["member"] else "The person is not a member.")
    keys = rng.sample(list(record), rng.randint(2, 5))
    return (f"Return a JSON object with the keys {', '.join(keys)} from this note.\n\n{text}", f"The keys are {', '.join(keys)}.",
            json.dumps({k: record[k] for k in keys}, ensure_ascii=False))


def lookup(rng):
    people = rng.sample(NAMES, 4)
    notes = []
    for who in people:
        notes.append(f"{who} keeps the {rng.choice(THINGS)} in room {rng.randint(100, 999)}.")
    filler = rng.sample([t for _, t in EXPLANATIONS], 2)
    text = "\n\n".join([filler[0], notes[0], notes[1], filler[1], notes[2], notes[3]])
    who = rng.choice(range(4))
    room = notes[who].rsplit(" ", 1)[1].rstrip(".")
    return (f"Read this:\n\n{text}\n\nIn which room does {people[who]} keep things?", f"I look for {people[who]}: {notes[who]}", f"Room {room}.")


def explanation(rng):
    topic, text = rng.choice(EXPLANATIONS)
    first = text.split(". ")[0] + "."
    return rng.choice([
        (f"Explain {topic}.", f"I should explain {topic} in plain words.", text),
        (f"In one sentence: what is {topic}?", "One sentence only.", first),
        (f"Write a paragraph about {topic}.", "One paragraph.", text),
        (f"Summarise this text in one sentence.\n\n{text}", f"The text is about {topic}.", first),
    ])


def code(rng):
    return rng.choice(CODE_QUESTIONS)


def italian(rng):
    return rng.choice(ITALIAN)


def story(rng):
    who, other = rng.sample(NAMES, 2)
    title, text = rng.choice(STORIES)
    text = text.replace("{A}", who).replace("{B}", other)
    return f"Tell a story: {title}. It is about {who} and {other}.", f"A short story with {who} and {other}.", text


# --- small talk: short questions with short, regular answers, as small models are taught them -----------------------

def small_fact(rng):
    name, capital, continent, currency, language, _ = rng.choice(COUNTRIES)
    question, fact_text, short = rng.choice([
        (rng.choice([f"What is the capital of {name}?", f"Name the capital of {name}.", f"Capital of {name}?"]),
         f"The capital of {name} is {capital}.", capital),
        (rng.choice([f"Which continent is {name} in?", f"In which continent is {name} located?"]), f"{name} is in {continent}.", continent),
        (rng.choice([f"What is the currency of {name}?", f"Which currency is used in {name}?"]),
         f"The currency of {name} is the {currency}.", currency),
        (rng.choice([f"Which language is spoken in {name}?", f"What languages do people speak in {name}?"]),
         f"In {name} people speak {language}.", language),
        (f"Of which country is {capital} the capital?", f"{capital} is the capital of {name}.", name)])
    reasoning = f"The user asks about {name}. I know this: {fact_text}"
    if rng.random() < 0.25:
        return rng.choice([f"Briefly: {question}", f"{question} Answer briefly."]), reasoning, short
    return question, reasoning, fact_text


def small_definition(rng):
    word, kind, meaning, example = rng.choice(DEFINITIONS)
    question = rng.choice([f'What does "{word}" mean?', f"Explain the word {word}.", f"What is the meaning of the {kind} {word}?",
                           f"Define the {kind} {word}."])
    article = "An" if word[0] in "aeiou" else "A"
    answer = {"noun": f"{article} {word} is {meaning}.", "verb": f"To {word} means {meaning}.", "adjective": f'"{word.capitalize()}" means {meaning}.'}[kind]
    if rng.random() < 0.4:
        question, answer = question + " Explain in detail.", f"{answer} It is {'an' if kind[0] in 'a' else 'a'} {kind}. Example: {example}"
    return question, f'The user asks about the {kind} "{word}".', answer


def small_arithmetic(rng):
    digits = rng.randint(1, 4)
    a, b = rng.randint(0, 10 ** digits - 1), rng.randint(0, 10 ** digits - 1)
    lines, carry = [f"{a} + {b}, digit by digit from the right."], 0
    x, y = str(a)[::-1], str(b)[::-1]
    for i in range(max(len(x), len(y))):
        p, q = int(x[i]) if i < len(x) else 0, int(y[i]) if i < len(y) else 0
        total = p + q + carry
        lines.append(f"{p} + {q}{' + 1' if carry else ''} = {total}, write {total % 10}, carry {total // 10}.")
        carry = total // 10
    if carry:
        lines.append("Carry 1 in front.")
    lines.append(f"So the result is {a + b}.")
    question = rng.choice([f"What is {a} + {b}?", f"Calculate {a} + {b}.", f"Compute {a} + {b}.", f"How much is {a} + {b}?", f"Quanto fa {a} + {b}?"])
    return question, "\n".join(lines), f"{a} + {b} = {a + b}"


def small_words(rng):
    words = rng.sample(THINGS, rng.randint(3, 6))
    text, numbered = " ".join(words), [f"{i} {w}" for i, w in enumerate(words, 1)]
    number_list = [rng.randint(0, 500) for _ in words]
    word = words[0]
    return rng.choice([
        (f"Sort alphabetically: {', '.join(words)}", f"In order: {', '.join(sorted(words))}.", ", ".join(sorted(words))),
        (f"Sort the numbers: {', '.join(map(str, number_list))}", "From small to large.", ", ".join(map(str, sorted(number_list)))),
        (f"Reverse the order of the words: {text}", f"The words are: {', '.join(numbered)}. From last to first: {', '.join(reversed(numbered))}.",
         " ".join(reversed(words))),
        (f"Convert to uppercase: {text}", "Every letter in capitals.", text.upper()),
        (f"Scrivi in minuscolo: {text.upper()}", "Ogni lettera minuscola.", text),
        (f"How many words are in this text: {text}", f"The words are: {', '.join(numbered)}. Total: {len(words)}.", str(len(words))),
        (f'How many letters are in "{word}"?', ", ".join(f"{i} {c}" for i, c in enumerate(word, 1)) + f". Total: {len(word)}.", str(len(word))),
        (f"What is the last word of: {text}", f"The words are {', '.join(words)}. The last is {words[-1]}.", words[-1]),
        (f"Write these words as a JSON array: {', '.join(words)}", "An array of strings.", json.dumps(words))])


def small_record(rng):
    who, city, age, n = rng.choice(NAMES), rng.choice(COUNTRIES)[1], rng.randint(18, 90), rng.randint(0, 5)
    colour, married = rng.choice(["red", "green", "blue", "yellow", "white"]), rng.random() < 0.5
    record = {"name": who, "city": city, "age": age, "children": n, "color": colour, "married": married}
    parts = [f"lives in {city}", f"is {age} years old", f"has {n} children", f"likes the color {colour}", "is married" if married else "is not married"]
    rng.shuffle(parts)
    text = f"{who} {', '.join(parts[:-1])} and {parts[-1]}."
    keys = ["name"] + rng.sample(list(record)[1:], rng.randint(1, 4))
    question = rng.choice([f"Extract {', '.join(keys)} as JSON: {text}", f"Keys: {', '.join(keys)}. Text: {text}",
                           f"Return a JSON object with the keys {', '.join(keys)}: {text}"])
    return question, f"The keys are {', '.join(keys)}.", json.dumps({k: record[k] for k in keys})


def small_recall(rng):
    people = rng.sample(NAMES, 3)
    lines = [f"Remember: {who} = {rng.randint(10, 9999)}." for who in people]
    filler = [t for _, t in rng.sample(EXPLANATIONS, 2)]
    chosen = rng.randrange(3)
    text = "\n\n".join([lines[0], filler[0], lines[1], filler[1], lines[2]])
    return (f"{text}\n\nWhich number belongs to {people[chosen]}?", f"I look for it in the text: {lines[chosen]}",
            lines[chosen][len("Remember: "):-1])


def small_code(rng):
    name, argument, file = rng.choice(THINGS), rng.choice(["x", "n", "items", "values"]), f"{rng.choice(['src', 'lib', 'docs'])}/{rng.choice(THINGS)}.txt"
    task, body = rng.choice([("returns the last item of a list", f"return {argument}[-1]"), ("returns the length of a list", f"return len({argument})"),
                             ("checks if a number is even", f"return {argument} % 2 == 0"), ("doubles a number", f"return {argument} * 2"),
                             ("prints the numbers from 1 to n", f"for i in range(1, {argument} + 1):\n        print(i)"),
                             ("returns the sum of a list", f"return sum({argument})")])
    function = f"```python\ndef {name}({argument}):\n    {body}\n```"
    command, what = rng.choice([(f"cat -n {file}", f"numbers the lines of {file}"), (f"wc -l {file}", f"counts the lines of {file}"),
                                (f"sort -u {file}", f"sorts {file} and removes duplicates"), (f"head -n 5 {file}", f"shows the first 5 lines of {file}"),
                                ("ls -lS", "lists the files by size"), (f"rm {file}", f"removes {file}")])
    return rng.choice([
        (f"Write a Python function {name} that {task}. Name the argument {argument}.", f"The function {name}.", function),
        (f"What does this function do?\n\n{function}", f"I read the body of {name}.", f"The function {name} {task}."),
        (f"Which shell command {what}?", f"It is {command.split()[0]}.", f"```sh\n{command}\n```"),
        (f"What does this command do? `{command}`", f"The command is {command.split()[0]}.", f"It {what}.")])


SMALL = [(small_fact, 4), (small_definition, 3), (small_arithmetic, 3), (small_words, 4), (small_record, 3), (small_recall, 1), (small_code, 3)]
MAKERS = [(fact, 4), (definition, 3), (arithmetic, 3), (list_task, 2), (structured, 2), (lookup, 1), (explanation, 3), (code, 3),
          (italian, 2), (story, 2)]


def chats(rng, makers_and_weights, tested, n):
    makers, weights = zip(*makers_and_weights)
    for _ in range(n):
        think = rng.random() < 0.4
        turns = []
        for maker in rng.choices(makers, weights, k=rng.choice([1, 1, 1, 2, 2, 3])):
            question, reasoning, answer = maker(rng)
            while question in tested:
                question, reasoning, answer = maker(rng)
            turns += [user(question), assistant(answer, reasoning)]
        if rng.random() < 0.15:
            turns.pop()  # a prompt that waits for its answer
        system = rng.choice(SYSTEMS) if rng.random() < 0.6 else ""
        yield ("chat", "think" if think else "nothink", render(turns, think, system))


# --- tools --------------------------------------------------------------------------------------------------------

def tool(name, description, required, /, **properties):
    return {"name": name, "description": description,
            "parameters": {"type": "object", "properties": properties, "required": required}}


TEXT, NUMBER, INTEGER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}


def weather(rng):
    city, degrees, sky = rng.choice(COUNTRIES)[1], rng.randint(-8, 36), rng.choice(["clear", "cloudy", "rain", "snow", "wind"])
    return (tool("current_weather", "Weather at a place, now", ["place"], place=TEXT, fahrenheit=FLAG),
            f"Do I need an umbrella in {city} today?", f"I ask for the weather in {city}.", {"place": city, "fahrenheit": False},
            json.dumps({"degrees": degrees, "sky": sky}), f"It is {degrees} degrees in {city}, {sky}.")


def convert_unit(rng):
    km = rng.randint(2, 900)
    return (tool("convert_unit", "Convert between units of measure", ["value", "from", "to"], value=NUMBER, **{"from": TEXT, "to": TEXT}),
            f"{km} kilometres, how many miles is that?", "A conversion: the tool is exact.", {"value": km, "from": "km", "to": "mi"},
            f"{km * 0.621371:.2f}", f"{km} kilometres are about {km * 0.621371:.1f} miles.")


def read_lines(rng):
    path, first = f"src/{rng.choice(THINGS)}.py", rng.randint(1, 90)
    body = "\n".join(rng.choice(CODE_QUESTIONS)[2].split("\n")[1:5])
    return (tool("read_lines", "Read lines of a text file", ["path", "first", "last"], path=TEXT, first=INTEGER, last=INTEGER),
            f"Show me lines {first} to {first + 3} of {path}.", f"I read {path}.", {"path": path, "first": first, "last": first + 3},
            body, f"Here they are:\n```\n{body}\n```")


def run_command(rng):
    command, out, answer = rng.choice([
        ("git status --short", " M src/main.c\n?? notes.txt", "One file is modified (src/main.c) and one is new (notes.txt)."),
        ("df -h /", "Filesystem Size Used Avail Use% Mounted on\n/dev/sda1 98G 71G 22G 77% /", "The disk is 77 % full; 22 GB are free."),
        ("wc -l data.csv", "1201 data.csv", "The file has 1201 lines."),
        ("make test", "FAIL test_parser: expected 3, got 4\n1 of 58 failed", "One of 58 tests fails: test_parser expected 3 and got 4."),
        ("uname -m", "x86_64", "It is a 64-bit x86 machine."),
        ("ls -1 docs", "index.md\ninstall.md\nusage.md", "There are three documents: index, install and usage.")])
    return (tool("run_command", "Run a shell command and return its output", ["command"], command=TEXT, timeout=INTEGER),
            f"Run `{command}` and tell me what it says.", "I run it and read the output.", {"command": command}, out, answer)


def add_contact(rng):
    who, number = rng.choice(NAMES), f"+{rng.randint(10, 99)} {rng.randint(100, 999)} {rng.randint(1000, 9999)}"
    return (tool("add_contact", "Store a phone number", ["name", "number"], name=TEXT, number=TEXT, tags={"type": "array", "items": TEXT}),
            f"Save {who}'s number: {number}. It is for work.", "Name, number and a tag.", {"name": who, "number": number, "tags": ["work"]},
            '{"ok": true}', f"I saved {who} with the number {number}.")


def search_notes(rng):
    thing, who = rng.choice(THINGS), rng.choice(NAMES)
    return (tool("search_notes", "Find notes that contain all words", ["words"], words={"type": "array", "items": TEXT}, limit=INTEGER),
            f"Did I write anything about {who} and the {thing}?", "I search my notes for both words.", {"words": [who, thing], "limit": 5},
            json.dumps([{"id": rng.randint(1, 99), "text": f"Ask {who} about the {thing} on Monday"}]),
            f"Yes: \"Ask {who} about the {thing} on Monday\".")


def set_timer(rng):
    minutes, thing = rng.randint(2, 59), rng.choice(THINGS)
    return (tool("set_timer", "Start a countdown", ["seconds"], seconds=INTEGER, label=TEXT),
            f"Wake me in {minutes} minutes for the {thing}.", f"{minutes} minutes are {minutes * 60} seconds.",
            {"seconds": minutes * 60, "label": thing}, '{"timer": 3}', f"The timer for the {thing} runs: {minutes} minutes.")


def translate(rng):
    it, _, _ = rng.choice(ITALIAN)
    return (tool("translate", "Translate text", ["text", "target"], text=TEXT, source=TEXT, target={"type": "string", "enum": ["en", "it", "de"]}),
            f"Translate with the tool into English: {it}", "Italian to English.", {"text": it, "source": "it", "target": "en"},
            "Error: service not reachable", "The translation service is not reachable at the moment. Please try again later.")


TOOL_MAKERS = [weather, convert_unit, read_lines, run_command, add_contact, search_notes, set_timer, translate]


def tool_chats(rng, n):
    for _ in range(n):
        think = rng.random() < 0.5
        made = [m(rng) for m in rng.sample(TOOL_MAKERS, rng.randint(1, 4))]
        turns = []
        for t, question, reasoning, arguments, out, answer in made[:rng.choice([1, 1, 2])]:
            turns += [user(question), assistant("", reasoning, [(t["name"], arguments)]), result(out),
                      assistant(answer, "The tool has answered.")]
        if len(made) > 2 and rng.random() < 0.4:  # two calls at once
            (a, qa, _, args_a, out_a, ans_a), (b, qb, _, args_b, out_b, ans_b) = made[1:3]
            turns += [user(f"{qa} And also: {qb}"), assistant("", "Two calls.", [(a["name"], args_a), (b["name"], args_b)]),
                      result(out_a), result(out_b), assistant(f"{ans_a}\n{ans_b}", "Both have answered.")]
        if rng.random() < 0.2:  # a question that needs no tool
            question, reasoning, answer = fact(rng)
            turns += [user(question), assistant(answer, reasoning + " No tool is needed.")]
        tools = [m[0] for m in made]
        rng.shuffle(tools)
        yield ("tools", "think" if think else "nothink", render(turns, think, rng.choice(SYSTEMS), tools))


# --- code, documents, prose ---------------------------------------------------------------------------------------

REPOSITORY = ["src/base/thread_pool.h", "src/ops/ops.h", "src/ops/blocks.cpp", "src/model/deepseek_v4/model.cpp", "src/gguf/parser.cpp",
              "src/kv/cache.cpp", "src/sample/sampler.cpp", "src/chat/python_json.cpp", "apps/vesta/cmd_tokenize.cpp",
              "tools/make_unicode_tables.py", "tools/width_table.py", "cmake/vesta.cmake", "tests/CMakeLists.txt", "check",
              "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/model.md", "docs/chat.md", "docs/gguf.md"]
ASKS = ["Review this file. What does it do?", "Explain this code to a new colleague.", "What could go wrong here?",
        "Write a short summary of this file."]


def excerpts(text, size):
    """Pieces of about `size` characters that end at a line's end."""
    start = 0
    while start < len(text):
        end = text.find("\n", min(start + size, len(text)))
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def repository_texts(rng):
    for path in REPOSITORY:
        file = ROOT / path
        if not file.exists():
            sys.exit(f"make_calibration: {path} is gone; change REPOSITORY")
        pieces = list(excerpts(file.read_text(encoding="utf-8"), 2800))
        for piece in rng.sample(pieces, min(2, len(pieces))):
            if rng.random() < 0.4:
                yield ("code", "prompt", render([user(f"{rng.choice(ASKS)}\n\n{path}:\n```\n{piece}```")], rng.random() < 0.5))
            else:
                yield ("code", "plain", piece)


def prose_texts(rng, book, held_out, budget):
    for title, text in PUBLIC_DOMAIN:
        yield ("prose", "plain", text)
    for title, text in STORIES:
        a, b = rng.sample(NAMES, 2)
        yield ("prose", "plain", text.replace("{A}", a).replace("{B}", b))
    yield ("prose", "plain", "\n\n".join(text for _, text in EXPLANATIONS))
    if book is None:
        return
    # Hard-wrapped lines become paragraphs; headings and the front matter are left out.
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", book)]
    paragraphs = [p for p in paragraphs if len(p) > 200 and not p.isupper()]
    left = budget
    while left > 0:
        at = rng.randrange(len(paragraphs) - 8)
        piece = "\n\n".join(paragraphs[at:at + 5])
        # Nothing that the tests measure quality on: no run of 60 characters may be in them.
        if any(piece[i:i + 60] in held_out for i in range(0, len(piece) - 60, 20)):
            continue
        left -= len(piece)
        yield ("prose", "plain", piece)


def held_out_text(files):
    """The test set's prompts and these files, white space as in the prose."""
    lines = (ROOT / "tests/data/pocket_eval.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["prompt"] for line in lines] + [f.read_text(encoding="utf-8", errors="replace") for f in files]
    return " ".join(" ".join(t.split()) for t in texts)


def user_messages(text):
    between = re.compile(re.escape(USER) + r"(.*?)" + re.escape(ASSISTANT), re.S)
    return {m for m in between.findall(text) if not m.startswith("<tool_result>")}


def test_messages(files=()):
    """What users say in the test set and in these files."""
    lines = (ROOT / "tests/data/pocket_eval.jsonl").read_text(encoding="utf-8").splitlines()
    messages = {m for line in lines for m in user_messages(json.loads(line)["prompt"])}
    for f in files:
        messages |= user_messages(f.read_text(encoding="utf-8", errors="replace"))
    return messages


def check_text(text):
    if len(text.encode()) > MAX_BYTES:
        sys.exit(f"make_calibration: {len(text.encode())} bytes, more than {MAX_BYTES}")
    for message in sorted(test_messages()):
        if f"{USER}{message}{ASSISTANT}" in text:
            sys.exit(f"make_calibration: a test prompt is in the text: {message[:100]!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--prose", type=pathlib.Path, help="a book in the public domain")
    parser.add_argument("--held-out", type=pathlib.Path, nargs="*", default=[], help="texts that must not be in it")
    args = parser.parse_args()
    check_renderer()
    if args.check:
        check_text(OUT.read_text(encoding="utf-8"))
        return
    rng = random.Random(4)
    book = args.prose.read_text(encoding="utf-8") if args.prose else None
    tested = test_messages(args.held_out)
    texts = list(chats(rng, MAKERS, tested, 100)) + list(chats(rng, SMALL, tested, 300)) + list(tool_chats(rng, 32))
    texts += list(repository_texts(rng)) + list(prose_texts(rng, book, held_out_text(args.held_out), 20_000))
    rng.shuffle(texts)  # so that a run that stops early has seen every kind
    out = "".join(f"===== VESTA_PROMPT {i} {kind} {mode} =====\n{text.rstrip()}\n\n" for i, (kind, mode, text) in enumerate(texts))
    check_text(out)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(out, encoding="utf-8")
    sizes = {}
    for kind, mode, text in texts:
        n, size = sizes.get(kind, (0, 0))
        sizes[kind] = (n + 1, size + len(text.encode()))
    for kind, (n, size) in sorted(sizes.items()):
        print(f"{kind:6} {n:4} texts {size:7} bytes")
    print(f"{OUT.relative_to(ROOT)}: {len(texts)} texts, {len(out.encode())} bytes")


if __name__ == "__main__":
    main()
