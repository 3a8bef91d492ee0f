"""Saved conversations: a tree in a file that only grows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import localinfer.history as history
from localinfer.history import ROOT, Conversation, ConversationBusy, HistoryError, SavedConversation
from localinfer.history_store import HistoryStore, export_markdown


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    return HistoryStore(tmp_path / "sessions")


def talk(store: HistoryStore, *texts: str) -> SavedConversation:
    """A straight conversation of user and assistant in turn."""
    conversation = store.new()
    for index, text in enumerate(texts):
        conversation.add(conversation.leaf, "assistant" if index % 2 else "user", text)
    return conversation


def test_what_was_said_is_read_back(store):
    conversation = talk(store, "hello", "hi", "more?")
    conversation.rename("a talk")
    conversation.configure("be brief", {"temperature": 0.2})
    conversation.close()
    again = store.read(conversation.id)
    assert [(m.role, m.text) for m in again.path()] == [("user", "hello"), ("assistant", "hi"), ("user", "more?")]
    assert (again.title, again.system, again.params) == ("a talk", "be brief", {"temperature": 0.2})


def test_an_empty_conversation_leaves_no_file(store):
    conversation = store.new()
    conversation.rename("nothing")
    conversation.close()
    assert store.list() == []


def test_a_title_given_before_the_first_message_is_saved_with_it(store):
    conversation = store.new()
    conversation.rename("early")
    conversation.add(ROOT, "user", "x")
    conversation.close()
    assert store.list()[0].title == "early"


def test_an_edit_is_a_sibling_and_both_branches_stay(store):
    conversation = talk(store, "one", "answer one")
    conversation.add(ROOT, "user", "two")
    assert [m.text for m in conversation.path()] == ["two"]
    assert conversation.siblings(1) == [1, 3]
    conversation.select(conversation.newest_leaf(1))
    conversation.close()
    assert [m.text for m in store.read(conversation.id).path()] == ["one", "answer one"]


def test_a_streamed_answer_survives_kill_9(store, tmp_path):
    code = (
        "import sys,os,signal;from pathlib import Path;from localinfer.history_store import HistoryStore\n"
        "c=HistoryStore(Path(sys.argv[1])).new();c.add(0,'user','q');m=c.add(1,'assistant',state='partial')\n"
        "c.grow(m.id,'half an ');c.grow(m.id,'answer');print(c.id,flush=True);os.kill(os.getpid(),signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(store.folder)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    answer = store.open(done.stdout.strip()).path()[-1]
    assert (answer.text, answer.state) == ("half an answer", "interrupted")


@pytest.mark.parametrize("cut", [2, 7, 30])
def test_a_torn_last_line_is_passed_over_and_fenced_off(store, cut):
    conversation = talk(store, "first", "second")
    conversation.close()
    size = conversation.file_path.stat().st_size
    os.truncate(conversation.file_path, size - cut)
    again = store.open(conversation.id)
    assert [m.text for m in again.path()] == ["first"]
    again.add(again.leaf, "assistant", "anew")
    again.close()
    assert [m.text for m in store.read(conversation.id).path()] == ["first", "anew"]


def test_foreign_lines_and_later_kinds_are_passed_over(store):
    conversation = talk(store, "first")
    conversation.close()
    with open(conversation.file_path, "ab") as file:
        file.write(b'{"t":"hologram","id":1}\n[1]\nnot json\n{"t":"message","id":9,"parent":77,"role":"user"}\n')
        file.write(b'{"t":"leaf","id":"x"}\n{"t":"message","id":1,"parent":0,"role":"user","text":"twice"}\n')
    assert [m.text for m in store.read(conversation.id).path()] == ["first"]


def test_a_second_writer_is_refused_and_a_copy_is_free(store):
    conversation = talk(store, "mine", "yes")
    with pytest.raises(ConversationBusy, match="another copy"):
        store.open(conversation.id)
    copy = store.copy(store.read(conversation.id))
    copy.add(copy.leaf, "user", "more")
    assert [m.text for m in copy.path()] == ["mine", "yes", "more"] and copy.id != conversation.id
    conversation.close()
    assert [m.text for m in store.open(conversation.id).path()] == ["mine", "yes"]


def test_a_full_disk_loses_nothing_and_is_told(store, monkeypatch):
    conversation = talk(store, "before")
    real = history._write_all

    def half(file, data):
        real(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(history, "_write_all", half)
    conversation.add(conversation.leaf, "assistant", "during")
    assert conversation.write_error == "No space left on device"
    assert [m.text for m in store.read(conversation.id).path()] == ["before"]
    monkeypatch.setattr(history, "_write_all", real)
    conversation.add(conversation.leaf, "user", "after")
    assert conversation.write_error == ""
    assert [m.text for m in store.read(conversation.id).path()] == ["before", "during", "after"]


def test_the_list_has_pinned_ones_first_then_the_latest(store):
    old, new, pinned = talk(store, "old"), talk(store, "new"), talk(store, "kept")
    pinned.pin(True)
    for age, conversation in enumerate((new, old, pinned)):
        conversation.close()
        os.utime(conversation.file_path, (1e9 - age, 1e9 - age))
    infos = store.list()
    assert [info.title for info in infos] == ["kept", "new", "old"]
    assert infos[0].pinned and [info.n_messages for info in infos] == [1, 1, 1]


@pytest.mark.parametrize("query", ["needle", "NEEDLE", 'a "quoted" word', "back\\slash", "naïve"])
def test_search_finds_text_however_json_writes_it(store, query):
    talk(store, "nothing here", "no").close()
    hit = talk(store, 'Needle and a "quoted" word, back\\slash, naïve', "x")
    hit.close()
    found = store.list(query)
    assert [info.id for info in found] == [hit.id]
    assert query.lower() in found[0].excerpt.lower()


def test_search_does_not_find_the_names_of_fields(store):
    talk(store, "hello").close()
    assert store.list("parent") == []


def test_search_finds_what_fell_between_two_flushes(store):
    conversation = talk(store, "q")
    answer = conversation.add(1, "assistant", state="partial")
    conversation.grow(answer.id, "hay nee")
    conversation.grow(answer.id, "dle hay")
    conversation.end(answer.id, "eos")
    conversation.close()
    assert len(store.list("needle")) == 1


def test_json_goes_out_and_in_again(store):
    conversation = talk(store, "one", "two")
    conversation.add(1, "assistant", "other two")
    conversation.rename("title")
    text = store.export_json(conversation)
    back = store.import_json(text)
    back.close()
    read = store.read(back.id)
    assert [(m.id, m.parent, m.text) for m in read.messages.values()] == [
        (1, 0, "one"),
        (2, 1, "two"),
        (3, 1, "other two"),
    ]
    assert (read.title, read.leaf) == ("title", 3)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format":"other"}', '{"format":"localinfer-conversation","messages":[{"id":2}]}',
     '{"format":"localinfer-conversation","messages":[{"id":1,"parent":5,"role":"user"}]}',
     '{"format":"localinfer-conversation","messages":[{"id":1,"parent":0,"role":"root"}]}'],
)  # fmt: skip
def test_a_broken_import_is_refused_and_leaves_nothing(store, text):
    with pytest.raises(HistoryError):
        store.import_json(text)
    assert store.list() == []


def test_markdown_has_the_branch_on_screen(store):
    conversation = talk(store, "question", "answer")
    conversation.configure("be kind", {})
    text = export_markdown(conversation)
    assert text.startswith("# question\n") and "## System\n\nbe kind" in text and "## User\n\nquestion" in text


@pytest.mark.parametrize("name", ["../../etc/passwd", "", ".", "a/b", "a\0b"])
def test_an_id_cannot_leave_the_folder(store, name):
    with pytest.raises(HistoryError):
        store.read(name)


def test_a_deleted_conversation_is_gone_and_says_so(store):
    conversation = talk(store, "x")
    conversation.close()
    store.delete(conversation.id)
    with pytest.raises(HistoryError):
        store.open(conversation.id)


def test_lone_surrogates_from_a_paste_do_not_break_the_file(store):
    conversation = talk(store, "bad \ud800 text")
    conversation.close()
    assert conversation.write_error == "" and store.read(conversation.id).path()[0].text == "bad ? text"


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["user", "assistant"]), st.text(max_size=8)), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_tree_is_read_back_as_it_was(tmp_path_factory, steps):
    store = HistoryStore(tmp_path_factory.mktemp("trees"))
    conversation = store.new()
    for parent, role, text in steps:
        conversation.add(min(parent, len(conversation.messages)), role, text)
    conversation.close()
    if steps:
        read = store.read(conversation.id)
        clean = {i: m.text.encode("utf-8", "replace").decode() for i, m in conversation.messages.items()}
        assert {i: m.text for i, m in read.messages.items()} == clean
        assert (read.children, read.leaf) == (conversation.children, conversation.leaf)


def test_records_are_lines_of_json(store):
    conversation = talk(store, "line\nbreak")
    conversation.close()
    records = [json.loads(line) for line in conversation.file_path.read_text(encoding="utf-8").splitlines()]
    assert [record["t"] for record in records] == ["open", "message"]
    assert isinstance(Conversation().id, str)
