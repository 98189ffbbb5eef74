"""The command line: what is shown, counted and refused, and with which exit status."""

import io
import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import theanoguard
from theanoguard._event import PathStep
from theanoguard._provenance import Provenance, SourceLine
from theanoguard.cli.main import main
from theanoguard.cli.report import Renderer
from theanoguard.explain import Cause, Explanation, Hint, Operand, Waypoint
from theanoguard.log.event_log import LogEntry, header_id, header_json, read_log
from theanoguard.records import GuardEvent

pytestmark = pytest.mark.on_30

ROOT = Path(theanoguard.__file__).parents[1]

ENVIRONMENT = {
    "versions": {
        "python": "3.12.1 (CPython)",
        "theanoguard": "0.1",
        "pytensor": "3.3.7",
        "jax": None,
    },
    "platform": "Linux-6.1",
    "device": "cpu",
    "compiler": {"cxx": "/usr/bin/g++", "version": "g++ 12.2.0", "flags": "-O3", "blas": ""},
    "config": {"floatX": "float32", "optimizer": "o4", "optimizer_including": ""},
}
MODE = {"class": "GuardMode", "checks": ["nan", "inf"], "optimizer": {"include": ["fast_run"]}}

LOSS = GuardEvent(
    kind="nan",
    role="node",
    node="Log(Softmax{axis=1}.0)",
    op="Log",
    variable="loss",
    output=0,
    dtype="float32",
    shape=(128, 10),
    size=1280,
    n_nan=3,
    n_posinf=0,
    n_neginf=1,
    n_big=0,
    first_index=(5, 2),
    first_value=float("nan"),
    call=4,
    function="train",
)
STEP = replace(
    LOSS,
    kind="inf",
    node="Composite{exp((i0 + i1))}(h, b)",
    op="Composite{exp((i0 + i1))}",
    variable=None,
    n_nan=0,
    n_posinf=7,
    n_neginf=0,
    path=(PathStep("Scan{rnn}", 17),),
    call=9,
    function=None,
)
INPUT = replace(
    LOSS,
    kind="big",
    role="input",
    node=None,
    op=None,
    variable="x",
    n_nan=0,
    n_neginf=0,
    n_big=4,
    call=12,
)
EVENTS = [LOSS, STEP, INPUT, replace(LOSS, call=10)]
LINE = SourceLine("/home/me/train.py", 12, "loss", "return -pt.log(p).mean()")
EXPLANATION = Explanation(
    LOSS,
    Cause(
        kind="nan",
        role="node",
        op="log",
        node="Log.0",
        fused=False,
        name="loss",
        own_name=True,
        expression="log(-0.25)",
        operands=(Operand("p", -0.25, (5, 2), (128, 10), "float32", -0.25, 1.0),),
        index=(5, 2),
        value=float("nan"),
        shape=(128, 10),
        dtype="float32",
        n_bad=4,
        size=1280,
        minimum=-3.0,
        maximum=0.0,
        provenance=Provenance(LINE),
        hint=Hint("log-negative", "Keep the argument positive."),
    ),
    waypoints=(Waypoint("x", (5, 2), 1.5, (128, 10), "input"),),
)


def write_log(path, events, mode=MODE):
    """Write a log; of an event the explanation stands in a line of its own, as a guard writes."""
    content = {"environment": ENVIRONMENT, "mode": mode}
    key = header_id(content)
    lines = [header_json(key, content)]
    for n, event in enumerate(events):
        time = f"2025-03-01T12:00:0{n}.000+00:00"
        if isinstance(event, Explanation):
            lines.append(LogEntry(event.event, time, 4711, key).to_json())
            record = {"time": time, "process": 4711, "header": key}
            lines.append(json.dumps({**record, "explanation": event.to_plain()}))
        else:
            lines.append(LogEntry(event, time, 4711, key).to_json())
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "events.jsonl"
    write_log(path, EVENTS)
    return path


def report(capsys, *arguments):
    """Run ``theanoguard report``; return the status, the output and the errors."""
    status = main(["report", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def run(*arguments, **options):
    """Run the command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "theanoguard", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        **options,
    )


def test_report_shows_all(log, capsys, golden):
    status, out, err = report(capsys, log)
    assert (status, err) == (0, "")
    golden("report", out)


def test_report_shows_every_event(log, capsys, golden):
    status, out, err = report(capsys, log, "--all")
    assert (status, err) == (0, "")
    golden("report_all", out)


def test_report_groups_by_cause(log, capsys):
    """Thousands of events of two operations take a page."""
    events = [replace(LOSS, call=call) for call in range(1, 3001)]
    later = [replace(STEP, call=call, function="train") for call in range(2001, 3001)]
    entries = [LogEntry(e, "2025-03-01T12:00:00.000+00:00", 1, "key") for e in events + later]
    texts = list(Renderer({}).groups(entries))
    assert len(texts) == 2
    assert texts[0].startswith("1. 3,000 events, calls 1 to 3000 of train\n")
    assert texts[1].startswith("2. 1,000 events, calls 2001 to 3000 of train\n")
    assert f"call 1 |{'#' * 40}| 3000" in texts[0]
    assert f"call 1 |{' ' * 26}" in texts[1]  # on the scale of all events of the function
    assert sum(len(text.splitlines()) for text in texts) < 20

    write_log(log, [EXPLANATION, *events[:9]])
    _, out, _ = report(capsys, log)
    assert out.count("What to do") == 1 and out.count("10 events, calls 1 to 9") == 1


def test_report_shows_the_last_ones(log, capsys):
    _, out, _ = report(capsys, log, "--last", "2", "--json")
    assert [json.loads(line)["event"]["call"] for line in out.splitlines()[1:]] == [12, 10]
    _, out, _ = report(capsys, log, "--last", "1", "--kind", "inf")
    assert "call 9" in out and out.endswith("1 of 4 events.\n")


@pytest.mark.parametrize("how", [[], ["--all"]])
def test_an_event_has_the_explanation_of_its_cause(log, capsys, how):
    """The guard explains the first event of a cause; a filter may leave only later ones."""
    write_log(log, [EXPLANATION, STEP, *(replace(LOSS, call=call) for call in (10, 11))])
    _, out, _ = report(capsys, log, "--last", "2", *how)
    assert "call 10" in out and "process 4711" in out
    assert out.count("The report of call 4, which has the same cause:\n") == 1
    assert out.count("NaN in log: log(-0.25)") == out.count("What to do") == 1
    _, out, _ = report(capsys, log, "--last", "3", "--short", *how)
    assert "What to do" not in out
    _, out, _ = report(capsys, log, "--call", "9", *how)  # nothing has explained this cause
    assert "What to do" not in out


def test_report_as_html(explained_log, capsys, tmp_path):
    file = tmp_path / "report.html"
    status, out, _ = report(capsys, explained_log, "--html", file)
    assert (status, out) == (0, f"The report is in {file}.\n")
    text = file.read_text()
    assert text.startswith("<!DOCTYPE html>") and "<style>" in text
    assert '<span class="tg-bad">' in text and "\x1b" not in text
    assert "1. 2 events, calls 4 to 10 of train" in text


def test_report_follows_a_log(log, capsys, monkeypatch):
    """What is appended is shown; an explanation that comes later, too."""
    write_log(log, EVENTS)
    texts = []
    new = [[*EVENTS, replace(LOSS, call=20)], [*EVENTS, replace(EXPLANATION, event=EVENTS[0])]]

    def sleep(seconds):
        texts.append(capsys.readouterr().out)
        if not new:
            raise KeyboardInterrupt
        write_log(log, new.pop(0))

    monkeypatch.setattr("time.sleep", sleep)
    assert main(["report", str(log), "--follow", "--last", "2"]) == 0
    first, second, third = texts
    assert "call 12" in first and "call 10" in first and "call 4" not in first
    assert "call 20" in second and "call 12" not in second
    assert "What to do" in third and "call 20" not in third

    new = [[EXPLANATION, *(replace(LOSS, call=call) for call in (10, 11))]]
    write_log(log, [EXPLANATION, replace(LOSS, call=10)])
    texts.clear()
    assert main(["report", str(log), "--follow", "--last", "1"]) == 0
    assert "call 10 of" in texts[0] and "The report of call 4" in texts[0]
    assert "call 11 of" in texts[1] and "What to do" not in texts[1]


def test_report_does_not_follow_as_json(log, capsys):
    status, out, err = report(capsys, log, "--follow", "--json")
    assert (status, out) == (2, "")
    assert "--follow prints text" in err


@pytest.fixture
def explained_log(log):
    write_log(log, [EXPLANATION, STEP, replace(LOSS, call=10)])
    return log


def test_report_shows_explanations(explained_log, capsys, golden):
    status, out, err = report(capsys, explained_log)
    assert (status, err) == (0, "")
    golden("report_explained", out)
    _, short, _ = report(capsys, explained_log, "--short")
    assert "train.py:12 in loss" in short
    assert "What to do" in out and "What to do" not in short


def test_report_counts_by_the_line(explained_log, capsys):
    """An event without an explanation has the line of the others of its operation."""
    _, out, _ = report(capsys, explained_log, "--count", "--json")
    assert [(c["count"], c["source"]) for c in json.loads(out)] == [
        (2, "/home/me/train.py:12 in loss"),
        (1, None),
    ]


@pytest.mark.parametrize(
    ("pattern", "number"), [("train.py:12", 2), ("in loss", 2), ("pt.log", 2), ("test", 0)]
)
def test_report_filters_by_the_line(explained_log, capsys, pattern, number):
    _, out, _ = report(capsys, explained_log, "--source", pattern, "--short")
    assert f"{number} of 3 events.\n" in out


def test_report_as_json_keeps_explanations(explained_log, capsys, tmp_path):
    _, out, _ = report(capsys, explained_log, "--json")
    again = tmp_path / "again.jsonl"
    again.write_text(out)
    # (by their texts: a NaN is not equal to itself)
    written, read = ([e.to_json() for e in read_log(p).entries] for p in (explained_log, again))
    assert read == written
    assert read_log(again).entries[0].explanation.to_plain() == EXPLANATION.to_plain()


def test_an_explanation_in_the_next_file(explained_log, capsys):
    """The log was rotated between an event and its explanation."""
    header, event, explanation, *others = explained_log.read_text().splitlines(keepends=True)
    older = explained_log.with_suffix(".1")
    older.write_text(header + event)
    explained_log.write_text("".join([header, explanation, *others]))
    for files in ([older, explained_log], [explained_log, older]):
        _, out, _ = report(capsys, *files)
        assert out.count("What to do") == 1
        assert out.endswith("3 of 3 events.\n")
    _, out, _ = report(capsys, explained_log)  # alone it tells the event, too
    assert out.count("What to do") == 1
    assert out.endswith("3 of 3 events.\n")


def test_report_has_colours_in_a_terminal_alone(explained_log, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "PYTHON_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    command = ["-m", "theanoguard", "report", str(explained_log)]
    pexpect = pytest.importorskip("pexpect")  # (it needs a POSIX system)
    terminal = pexpect.run(" ".join([sys.executable, *command]), cwd=ROOT, encoding="utf-8")
    assert "\x1b[1;31mNaN in log: log(-0.25)" in terminal
    assert "\x1b" not in run("report", explained_log).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = pexpect.run(" ".join([sys.executable, *command]), cwd=ROOT, encoding="utf-8")
    assert "NaN in log: log(-0.25)" in terminal and "\x1b" not in terminal


def test_report_counts(log, capsys, golden):
    status, out, _ = report(capsys, log, "--count")
    assert status == 0
    golden("report_count", out)


def test_report_counts_as_json(log, capsys):
    _, out, _ = report(capsys, log, "--count", "--json")
    assert json.loads(out) == [
        {
            "count": n,
            "kind": kind,
            "node": node,
            "variable": variable,
            "written": None,
            "source": None,
        }
        for n, kind, node, variable in [
            (2, "nan", "Log(Softmax{axis=1}.0)", "loss"),
            (1, "inf", "Composite{exp((i0 + i1))}(h, b)", None),
            (1, "big", "input", "x"),
        ]
    ]


@pytest.mark.parametrize(
    ("arguments", "calls"),
    [
        ([], [4, 9, 12, 10]),
        (["--kind", "nan"], [4, 10]),
        (["--kind", "nan", "--kind", "big"], [4, 12, 10]),
        (["--node", "Log"], [4, 10]),
        (["--node", "Composite*exp"], [9]),
        (["--node", "log"], []),
        (["--variable", "l*s"], [4, 10]),
        (["--variable", "los"], []),
        (["--call", "9"], [9]),
        (["--call", "5..10"], [9, 10]),
        (["--call", "10.."], [12, 10]),
        (["--call", "..9"], [4, 9]),
        (["--kind", "nan", "--call", "5.."], [10]),
    ],
)
def test_report_filters(log, capsys, tmp_path, arguments, calls):
    status, out, _ = report(capsys, log, "--json", *arguments)
    assert status == 0
    if not calls:
        assert out == ""
        return
    again = tmp_path / "again.jsonl"  # what --json prints is a log
    again.write_text(out)
    assert [event.call for event in read_log(again).events] == calls
    assert read_log(again).headers == read_log(log).headers


def test_report_joins_rotated_files(log, capsys):
    write_log(log.with_suffix(".1"), [replace(LOSS, call=1)], {"class": "NanGuardMode"})
    status, out, _ = report(capsys, log, log.with_suffix(".1"))
    assert status == 0
    assert out.endswith("5 of 5 events.\n")
    assert "\nEnvironment 1:\n" in out and "\nEnvironment 2:\n" in out
    _, out, _ = report(capsys, log, log.with_suffix(".1"), "--all")
    assert "call 1 of train, process 4711, environment 2\n" in out
    assert "call 4 of train, process 4711, environment 1\n" in out


def test_report_mentions_damage(log, capsys):
    log.write_bytes(log.read_bytes()[:-20])
    _, out, _ = report(capsys, log)
    assert out.endswith("3 of 3 events; damaged lines, left out: 1.\n")


def test_report_does_not_let_names_play_with_the_terminal(tmp_path, capsys):
    path = tmp_path / "log"
    evil = replace(LOSS, variable="\x1b[2J", node="a\nb\x07", dtype="\x1b[0m")
    line = SourceLine("\x07", 1, "\x1b]0;", "\x1b[2J")
    cause = EXPLANATION.cause
    operand = replace(cause.operands[0], name="\x1b[2J", dtype="\x07")
    cause = replace(
        cause, expression="\x1b[2J", dtype="\x07", provenance=Provenance(line), operands=(operand,)
    )
    explanation = Explanation(replace(evil, call=2), cause, notes=("\x1b[2J",))
    write_log(path, [evil, explanation], {"class": "\x1b[0m"})
    for arguments in ([], ["--all"], ["--count"], ["--json"]):
        _, out, _ = report(capsys, path, *arguments)
        assert all(c.isprintable() for c in out.replace("\n", ""))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            None,
            "theanoguard report: 'events.jsonl': No such file or directory\n"
            "Name the file that GuardMode(log=...) has written.\n",
        ),
        ("", "'events.jsonl' is empty.\nNo function has been compiled with this log so far."),
        ("a,b\n1,2\n", "'events.jsonl' is no log of events: it has no header."),
        ('{"loss": 1}\n', "Line 1: neither a header nor an event"),
    ],
)
def test_report_refuses_what_is_no_log(content, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("events.jsonl").write_text(content)
    status, out, err = report(capsys, "events.jsonl")
    assert (status, out) == (2, "")
    assert text in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["report"], "required: log"),
        (["report", "x", "--kind", "odd"], "invalid choice: 'odd'"),
        (["report", "x", "--call", "3-4"], "'3-4' is not a range of calls: N, N..M, N.. or ..M"),
        (["report", "x", "--call", ".."], "'..' is not a range of calls"),
        (["report", "x", "--call", "4..3"], "'4..3' is not a range of calls"),
        (["report", "x", "--last", "0"], "'0' is not a number of events"),
        (["report", "x", "--all", "--count"], "not allowed with argument"),
        (["report", "x", "--odd"], "theanoguard report: unknown arguments: --odd"),
        (["doctor", "--odd"], "theanoguard doctor: unknown arguments: --odd"),
        (["cure"], "invalid choice: 'cure'"),
        (["--odd"], "theanoguard: unknown arguments: --odd"),
    ],
)
def test_wrong_arguments(arguments, text, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert text in first and "--help` lists the options" in second


def test_report_without_events(log, capsys):
    write_log(log, [])
    status, out, _ = report(capsys, log)
    assert (status, out) == (0, "The log has no events: no check has found a bad value.\n")


@pytest.mark.parametrize("how", [[], ["--all"], ["--count"]])
def test_report_when_nothing_matches(log, capsys, how):
    _, out, _ = report(capsys, log, "--node", "zzz", *how)
    first, second = out.splitlines()
    assert first == "0 of 4 events." and "--count` lists" in second


def test_report_to_a_folder_that_does_not_exist(log, capsys):
    status, _, err = report(capsys, log, "--html", "nowhere/report.html")
    assert status == 2 and "'nowhere/report.html': No such file" in err


@pytest.mark.parametrize(
    ("name", "found"),
    [("log-of-zero", ["TG101"]), ("Cholesky", ["TG601"]), ("zzz", [])],
)
def test_explain_names_similar_faults(name, found, capsys):
    assert main(["explain", name]) == 2
    err = capsys.readouterr().err
    assert f"there is no fault with the code {name!r}" in err.splitlines()[0]
    assert re.findall(r"TG\d+", err) == found
    assert found or "lists all faults" in err


def test_as_a_program(log):
    shown = run("report", log, "--count")
    assert (shown.returncode, shown.stderr) == (0, "")
    row = shown.stdout.splitlines()[1].split()
    assert row == ["2", "nan", "loss", "-", "Log(Softmax{axis=1}.0)"]
    failed = run("report", log.parent / "missing")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_what_events_ran_on_fits_the_terminal(log, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["report", str(log)]) == 0
    *_, environment, _ = capsys.readouterr().out.split("\n\n")
    lines = environment.splitlines()
    assert lines[0] == "Environment:" and len(lines) > 3
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("how", [[], ["--all"], ["--all", "--short"]])
def test_an_explanation_fits_the_terminal(explained_log, capsys, monkeypatch, columns, how):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["report", str(explained_log), *how]) == 0
    shown = capsys.readouterr().out
    assert "NaN in log" in shown
    assert max(map(len, shown.splitlines())) <= columns


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_report_in_any_encoding(tmp_path, monkeypatch, encoding):
    path = tmp_path / "log"
    write_log(path, [replace(EVENTS[0], variable="größe\u2192")])
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert main(["report", str(path)]) == 0
    shown = written.getvalue().decode(encoding)
    name = "größe\u2192".encode(encoding, "backslashreplace").decode(encoding)
    assert name in shown


def test_a_closed_pipe_is_no_error(tmp_path):
    path = tmp_path / "log"
    write_log(path, EVENTS * 500)
    command = f"{sys.executable} -m theanoguard report {path} | head -1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("1. 1,")


def test_an_interrupted_command_shows_no_traceback(log, capsys, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("theanoguard.cli.report.read_logs", interrupted)
    assert main(["report", str(log)]) == 130
    assert capsys.readouterr().err == "\ntheanoguard report: interrupted\n"


def test_alone_it_prints_its_help(capsys):
    assert main([]) == 0
    assert "usage: theanoguard" in capsys.readouterr().out


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_start_without_pytensor(argument):
    code = (
        "import sys\nfrom theanoguard.cli.main import main\n"
        f"try: main([{argument!r}])\nexcept SystemExit: print('pytensor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def hostile(rng, value):
    """Return a plain value with one part of it replaced by something that no log has."""
    places = []

    def visit(container, key, part):
        places.append((container, key))
        for inner in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(inner[1], dict | list):
                visit(part, *inner)
            else:
                places.append((part, inner[0]))

    whole = [json.loads(json.dumps(value))]
    visit(whole, 0, whole[0])
    container, key = rng.choice(places)
    deep = nested(rng.choice([3, 80]))
    container[key] = rng.choice(
        [None, -1, 10**400, "", "x" * 9, [], {}, deep, {"float": "x"}, {"x": deep}, {"numpy": deep}]
    )
    return whole[0]


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("seed", range(40))
def test_report_survives_any_log(log, capsys, seed):
    rng = random.Random(seed)
    lines = log.read_text().splitlines()
    for _ in range(8):
        at = rng.randrange(len(lines))
        spoiled = [*lines]
        spoiled[at] = json.dumps(hostile(rng, json.loads(lines[at])))
        log.write_text("\n".join(spoiled))
        for arguments in ([], ["--all"], ["--count"], ["--json"]):
            status, _, err = report(capsys, log, *arguments)
            assert status == 0 or (status == 2 and err.strip()), spoiled[at]


@pytest.mark.parametrize("depth", [500, 5_000, 200_000])
def test_report_survives_a_deeply_nested_line(log, capsys, depth):
    with log.open("a") as file:
        file.write("[" * depth + "]" * depth + "\n")
        file.write('{"header":' * depth + "1" + "}" * depth + "\n")
    status, out, err = report(capsys, log)
    assert (status == 0 and "damaged" in out) or (status == 2 and "no log of events" in err)
