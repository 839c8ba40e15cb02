"""What the model is given to read: templates of all kinds, one BOS, and a chat that fits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest
from helpers_templates import (
    DEAF_TO_SYSTEM,
    GEMMA_LIKE,
    LLAMA_LIKE,
    MISTRAL_LIKE,
    QWEN_LIKE,
    SYSTEM_FIRST,
    THINKING_LIKE,
    TRAINING_LIKE,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.chat import Message, Template, fit, split_thinking
from localspec.errors import PromptError


def chat(*turns: str) -> list[Message]:
    """``s:`` system, ``u:`` user, ``a:`` assistant."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [Message(roles[t[0]], t[2:]) for t in turns]  # type: ignore[arg-type]


ORDINARY = chat("s:Be brief.", "u:Hi", "a:Hello", "u:Bye")


def test_qwen_like_template_writes_its_default_system_text() -> None:
    template = Template(QWEN_LIKE, bos="<|endoftext|>")
    assert template.render(chat("u:Hi")) == (
        "<|im_start|>system\nBe helpful.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "Be helpful" not in template.render(ORDINARY)


def test_render_without_the_start_of_an_answer() -> None:
    text = Template(QWEN_LIKE).render(chat("u:Hi", "a:Yes"), add_generation_prompt=False)
    assert text.endswith("<|im_start|>assistant\nYes<|im_end|>\n")


def test_thinking_of_earlier_answers_is_left_out_by_the_template() -> None:
    turns = chat("u:1", "a:<think>\nhm\n</think>\n\nOne", "u:2")
    assert "hm" not in Template(THINKING_LIKE).render(turns)
    text = Template(THINKING_LIKE, options={"enable_thinking": False}).render(turns)
    assert text.endswith("assistant\n<think>\n\n</think>\n\n")


def test_mistral_like_template_places_the_system_text_itself() -> None:
    assert Template(MISTRAL_LIKE, bos="<s>", eos="</s>").render(ORDINARY) == (
        "<s>[INST] Hi[/INST] Hello</s>[INST] Be brief.\n\nBye[/INST]"
    )


def test_training_marks_are_ignored_and_the_date_is_known() -> None:
    template = Template(TRAINING_LIKE, now=lambda: datetime(2026, 3, 1))
    assert template.render(chat("u:q", "a:x", "u:r")) == "Today: 01 March 2026\n[q]x[r]"


# F23: templates that refuse


@pytest.mark.parametrize("source", [GEMMA_LIKE, MISTRAL_LIKE, QWEN_LIKE, LLAMA_LIKE])
def test_chat_goes_on_after_an_answer_stopped_before_its_first_word(source: str) -> None:
    text = Template(source, bos="<s>").render(chat("u:first", "a:", "u:second"))
    assert text.index("first") < text.index("second")


def test_repeated_roles_are_joined_only_where_the_template_refuses_them() -> None:
    turns = chat("u:first", "u:second")
    assert Template(GEMMA_LIKE, bos="<bos>").render(turns) == (
        "<bos><start_of_turn>user\nfirst\n\nsecond<end_of_turn>\n<start_of_turn>model\n"
    )
    assert Template(QWEN_LIKE).render(turns).count("<|im_start|>user") == 2


def test_a_stopped_answer_stays_in_the_chat() -> None:
    text = Template(GEMMA_LIKE).render(chat("u:one", "a:half an ans", "u:two"))
    assert "<start_of_turn>model\nhalf an ans<end_of_turn>" in text


def test_refused_system_text_moves_into_the_first_question() -> None:
    assert Template(GEMMA_LIKE, bos="<bos>").render(ORDINARY) == (
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
        "<start_of_turn>model\nHello<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )


def test_system_text_that_the_template_leaves_out_moves_into_the_first_question() -> None:
    text = Template(DEAF_TO_SYSTEM).render(ORDINARY)
    assert text == "<user>Be brief.\n\nHi\n<assistant>Hello\n<user>Bye\n<assistant>"


def test_late_system_text_moves_to_the_front() -> None:
    text = Template(SYSTEM_FIRST).render(chat("s:one", "u:Hi", "a:Yo", "s:two", "u:Bye"))
    assert text == "<system>one\n\ntwo\n<user>Hi\n<assistant>Yo\n<user>Bye\n"


def test_system_text_alone_becomes_a_question() -> None:
    assert "<start_of_turn>user\nBe brief." in Template(GEMMA_LIKE).render(chat("s:Be brief."))


def test_the_templates_own_words_are_shown_when_nothing_helps() -> None:
    template = Template("{{ raise_exception('Only on Sundays') }}", name="odd.gguf")
    with pytest.raises(PromptError, match=r"odd\.gguf.*Only on Sundays") as caught:
        template.render(ORDINARY)
    assert "--raw" in caught.value.hint


def test_template_that_needs_a_list_of_tools_gets_an_empty_one() -> None:
    source = "{% for t in tools %}{{ t }}{% endfor %}{{ messages[0].content }}"
    assert Template(source).render(chat("u:Hi")) == "Hi"


def test_empty_chat_is_an_error() -> None:
    with pytest.raises(PromptError, match="empty"):
        Template(QWEN_LIKE).render([])


# No template in the file


def test_without_a_template_chatml_where_the_vocabulary_has_it() -> None:
    template = Template(None, chatml=True, name="x")
    assert template.render(chat("u:Hi")) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.note == "x has no chat template; ChatML is used."
    assert Template(QWEN_LIKE).note == ""


def test_without_a_template_no_role_names_are_made_up() -> None:
    template = Template(None)
    assert template.render(ORDINARY) == "Be brief.\n\nHi\n\nHello\n\nBye"
    assert "continues your text" in template.note


# F22: one BOS

BOS_ID, WORD_ID = 1, 7


def ids(text: str, add_special: bool, bos: str) -> list[int]:
    """A tokenizer that knows one special token; anything else is one word."""
    found = [BOS_ID] if add_special else []
    while bos and text.startswith(bos):
        found.append(BOS_ID)
        text = text.removeprefix(bos)
    return [*found, WORD_ID]


WITH_BOS, WITHOUT_BOS = "{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"


@pytest.mark.parametrize(
    ("source", "bos", "add_bos", "in_chat", "in_raw"),
    [
        (WITH_BOS, "<s>", True, 1, 1),
        (WITHOUT_BOS, "<s>", True, 1, 1),
        (WITH_BOS, "<s>", False, 1, 0),
        (WITHOUT_BOS, "<s>", False, 0, 0),
        (WITH_BOS, "", False, 0, 0),
        (WITHOUT_BOS, "", True, 0, 0),
        ("\n \n" + WITH_BOS, "<s>", True, 1, 1),  # nothing may come before it
        (None, "<s>", True, 1, 1),
    ],
)
def test_exactly_one_bos(
    source: str | None, bos: str, add_bos: bool, in_chat: int, in_raw: int
) -> None:
    template = Template(source, bos=bos, add_bos=add_bos)
    assert ids(*template.prompt_for(chat("u:Hi")), bos) == [BOS_ID] * in_chat + [WORD_ID]
    assert ids(*template.raw("Hi"), bos) == [BOS_ID] * in_raw + [WORD_ID]


def test_bos_typed_by_the_user_is_not_doubled() -> None:
    assert template_ids("<s>Hi") == [BOS_ID, WORD_ID]
    assert template_ids(" <s>Hi") == [BOS_ID, WORD_ID]  # a raw text is left as it is


def template_ids(text: str) -> list[int]:
    return ids(*Template(None, bos="<s>", add_bos=True).raw(text), "<s>")


# Trimming


def words(messages: Sequence[Message]) -> int:
    return sum(len(m.content.split()) for m in messages)


LONG = chat("s:be kind", *(t for i in range(10) for t in (f"u:q{i} q", f"a:a{i} a a")), "u:last q")


def test_a_chat_that_fits_is_left_alone() -> None:
    assert fit(LONG, words(LONG), words) == (LONG, 0)


def test_oldest_turns_go_and_system_and_last_question_stay() -> None:
    kept, n_dropped = fit(LONG, 30, words)
    assert kept[0] == LONG[0]
    assert kept[-1] == LONG[-1]
    assert kept[1].role == "user"
    assert kept[1:] == LONG[1 + n_dropped :]
    # 22 of 30 words: a quarter is free for what comes, and not a turn more was dropped than that.
    assert words(kept) == 19
    assert words(LONG[0:1]) + words(LONG[n_dropped - 1 :]) > 22


def test_what_was_left_out_stays_out_so_that_the_prompt_begins_as_before() -> None:
    kept, n_dropped = fit(LONG, 30, words)
    more = [*LONG, Message("assistant", "a a"), Message("user", "next q")]
    again, n_now = fit(more, 30, words, n_dropped=n_dropped)
    assert n_now == n_dropped
    assert again[: len(kept)] == kept


def test_only_the_last_question_fits() -> None:
    kept, _ = fit(LONG, 4, words)
    assert kept == [LONG[0], LONG[-1]]


def test_last_question_too_long_names_both_numbers() -> None:
    with pytest.raises(PromptError, match=r"4 tokens.*room for 3"):
        fit(LONG, 3, words)


@settings(deadline=None)  # the machine may be busy
@given(
    st.lists(st.sampled_from(["u:a", "u:a b c", "a:a", "a:a b c d", "s:x"]), max_size=20),
    st.integers(min_value=0, max_value=60),
    st.integers(min_value=0, max_value=25),
)
def test_trimming_keeps_what_it_must(turns: list[str], n_room: int, before: int) -> None:
    messages = chat(*turns, "u:last")
    calls = 0

    def count(some: Sequence[Message]) -> int:
        nonlocal calls
        calls += 1
        return words(some)

    system = [m for m in messages if m.role == "system"]
    try:
        kept, n_dropped = fit(messages, n_room, count, n_dropped=before)
    except PromptError:
        assert words(system) + 1 > n_room
        return
    rest = [m for m in messages if m.role != "system"]
    assert kept == [*system, *rest[n_dropped:]]
    assert kept[-1] == messages[-1]
    assert words(kept) <= n_room
    assert n_dropped == 0 or rest[n_dropped].role == "user"
    assert calls <= 8


# Thinking


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Hi", [("text", "Hi")]),
        ("<think>\nhm\n</think>\n\nHi", [("thinking", "hm\n"), ("text", "\n\nHi")]),
        ("<think>\nstill at", [("thinking", "still at")]),
        ("<think>\n\n</think>\n\nHi", [("text", "\n\nHi")]),
        ("A\n<think>b</think>c", [("text", "A\n"), ("thinking", "b"), ("text", "c")]),
        ("Use the <think> tag.", [("text", "Use the <think> tag.")]),
        ("a </think> b", [("text", "a </think> b")]),
        ("<thinking>x</think></thinking>y", [("thinking", "x</think>"), ("text", "y")]),
        ("", []),
    ],
)
def test_thinking_is_told_from_the_answer(text: str, parts: list[tuple[str, str]]) -> None:
    assert split_thinking(text) == parts


def test_thinking_that_the_prompt_began() -> None:
    assert split_thinking("hm</think>Hi", started=True) == [("thinking", "hm"), ("text", "Hi")]
    assert split_thinking("", started=True) == []
