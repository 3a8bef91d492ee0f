"""Drafting: the index against a search that looks everywhere, the gate's habits, and the same text on and off."""

from __future__ import annotations

import itertools
import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localinfer.engine.draft_gate import PRIOR_ACCEPTANCE, DraftGate, kind_of
from localinfer.engine.drafter import NgramDrafter
from localinfer.engine.events import TextDelta, TurnDone
from localinfer.engine.ngram_index import (
    BYTES_PER_TOKEN,
    LINKS,
    LONG,
    MAX_MATCH,
    RIVALS,
    SHORT,
    Match,
    NgramIndex,
    Support,
)
from localinfer.engine.params import EngineOptions, SamplingParams
from localinfer.planner.drafting import best_length
from tests.fakes.scripted import EOS, engine, noise


def built(tokens):
    index = NgramIndex()
    index.sync(list(tokens))
    return index


def searched(tokens):
    """The same rule, without an index: the newest places where LONG (else SHORT) tokens agree, longest first."""
    for n in (LONG, SHORT):
        places = [p for p in range(len(tokens) - 1, n - 1, -1) if tokens[p - n : p] == tokens[len(tokens) - n :]]
        lengths = [
            (next((i for i in range(min(p, MAX_MATCH)) if tokens[p - 1 - i] != tokens[-1 - i]), min(p, MAX_MATCH)), p)
            for p in places[: LINKS[n]]
        ]
        if lengths:
            longest = max(length for length, _ in lengths)
            best = next(p for length, p in lengths if length == longest)
            rivals = [p for _, p in lengths[: RIVALS + 1] if p != best]
            return Match(best, longest, tuple(rivals[:RIVALS]))
    return None


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), max_size=80))
def test_index_finds_what_a_search_finds(tokens):
    assert built(tokens).longest_match() == (searched(tokens) if len(tokens) >= SHORT else None)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 3), max_size=60), st.integers(0, 60))
def test_going_back_leaves_no_trace(tokens, others, cut):
    index = built(tokens)
    index.truncate(min(cut, len(tokens)))
    index.sync(others)
    fresh = built(others)
    assert index.tokens == fresh.tokens and index._links == fresh._links and index._heads == fresh._heads


def test_a_continuation_that_reaches_the_end_repeats_itself():
    index = built([7, 1, 2, 3, 1, 2, 3, 1, 2])
    assert index.continuation(index.longest_match(), 8) == [3, 1, 2, 3, 1, 2, 3, 1]


def test_lookup_and_update_are_fast_at_32k_tokens():
    rng = np.random.default_rng(0)
    words = [rng.integers(0, 50_000, 8).tolist() for _ in range(200)]
    index = built(itertools.chain.from_iterable(words[i] for i in rng.integers(0, 200, 4096)))
    assert len(index) == 32_768
    times = []
    for token in words[3] * 40:
        index.extend(token)
        start = time.perf_counter()
        index.longest_match()
        times.append(time.perf_counter() - start)
    assert sorted(times)[len(times) // 2] < 60e-6  # 20 us on a quiet machine; tests run on busy ones


def test_the_plan_prices_the_index_within_a_third():
    import tracemalloc

    tokens = np.random.default_rng(1).integers(0, 250_000, 20_000).tolist()
    tracemalloc.start()
    index = built(tokens)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.67 < used / (len(index) * BYTES_PER_TOKEN) < 1.33


def test_what_other_places_say_of_a_guess():
    text = [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 7, 0, 1, 2, 3, 4]
    index = built(text)
    match = index.longest_match()
    guesses = index.continuation(match, 4)
    assert guesses == [5, 7, 0, 1]
    assert index.support(match, guesses) == [Support.AGREED, Support.DISPUTED, Support.ALONE, Support.ALONE]
    assert index.support(Match(3, 2), [4, 5]) == [Support.ALONE, Support.ALONE]


def gate(step=1.0, rounds=20):
    made = DraftGate()
    for _ in range(rounds):
        made.observe([], 0, step)
    return made


def guesses(matched, n, support=Support.ALONE):
    """Kinds of n guesses after so many tokens that matched."""
    return [kind_of(matched + i, support) for i in range(n)]


def test_nothing_is_drafted_before_a_step_was_timed():
    assert DraftGate().length(guesses(30, 15)) == 0


def test_good_guesses_lead_to_longer_drafts():
    g = gate()
    lengths = []
    for _ in range(40):
        lengths.append(g.length(guesses(20, 15)))
        g.observe(guesses(20, lengths[-1]), lengths[-1], 1 + 0.1 * lengths[-1])
    assert 0 < lengths[0] < lengths[-1] == 15 and g.saved_s > 100


def test_a_length_is_at_most_doubled_at_a_time():
    g = gate()
    longest = 1
    for _ in range(10):
        k = g.length(guesses(40, 15, Support.AGREED))
        assert k <= 2 * longest
        longest = max(longest, k)
        g.observe(guesses(40, k, Support.AGREED), k, 1 + 0.05 * k)
    assert longest == 15


def test_disputed_guesses_are_worth_less():
    values = {s: gate()._rates[kind_of(4, s)].value for s in Support}
    assert values[Support.DISPUTED] < 0.5 < values[Support.ALONE] < values[Support.AGREED]
    assert all(0 < p < 1 for _, priors in PRIOR_ACCEPTANCE for p in priors)


@pytest.mark.parametrize("row", [0.2, 0.4, 0.6])
def test_failing_guesses_cost_at_most_a_share_and_are_tried_again(row):
    g = gate(rounds=1)
    real, plain = 1.0, 1.0
    drafted_at = []
    for i in range(3000):
        k = g.length(guesses(4, 15))
        seconds = 1 + row * k
        real, plain = real + seconds, plain + 1
        drafted_at += [i] * (k > 0)
        g.observe(guesses(4, k), 0, seconds)
        assert plain / real > 0.95 or i < 15
    assert plain / real > 0.985
    assert len(drafted_at) > 3 and drafted_at[-1] > 1000


def test_what_an_earlier_answer_saved_is_not_lost_in_the_next():
    g = gate()
    for _ in range(50):
        g.observe(guesses(20, 4), 4, 2.0)
    assert g.saved_s > 100
    g.begin_answer()
    real, plain = 0.0, 0
    for _ in range(40):
        k = g.length(guesses(20, 15))
        real, plain = real + 1 + 0.25 * k, plain + 1
        g.observe(guesses(20, k), 0, 1 + 0.25 * k)
    assert plain / real > 0.95


def test_expensive_rows_are_not_drafted():
    g = gate()
    for _ in range(200):
        k = g.length(guesses(20, 15))
        g.observe(guesses(20, k), k, 1 + 1.5 * k)
    assert g.length(guesses(20, 15)) == 0


def test_the_gate_follows_a_machine_that_becomes_slower():
    g = gate()
    for _ in range(30):
        g.observe([], 0, 10.0)
    assert 9 < g.step_s < 11


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0, 1), st.floats(1, 3))
def test_best_length_is_the_best_of_all(accepts, row, base):
    cost = [1.0, *(base + row * k for k in range(1, len(accepts) + 1))]
    k = best_length(accepts, cost)

    def per_token(n):
        return cost[n] / (1 + sum(np.prod(accepts[:i]) for i in range(1, n + 1)))

    assert per_token(k) <= min(per_token(n) for n in range(len(accepts) + 1)) * (1 + 1e-9)


class Oracle(NgramDrafter):
    """Drafts every round, right and wrong alike, to try the verification itself."""

    def __init__(self, truth, wrong_every):
        super().__init__()
        self.truth = truth
        self.wrong_every = wrong_every
        self.rounds = 0

    def propose(self, limit):
        self.rounds += 1
        at = len(self.index)
        k = min(limit, self.rounds % 6)
        guesses = list(self.truth[at : at + k])
        return [(t + 1) % 256 if (at + i) % self.wrong_every == 0 else t for i, t in enumerate(guesses)]


def told(eng, prompt, params):
    events = list(eng.generate(list(prompt), params))
    done = events[-1]
    assert isinstance(done, TurnDone)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == done.text
    return done


SETTINGS = [
    {"temperature": 0},
    {"temperature": 0.8, "seed": 1},
    {"temperature": 1.5, "seed": 2, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0.9, "seed": 3, "repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
    {"temperature": 0.9, "seed": 4, "max_tokens": 17},
    {"temperature": 1.0, "seed": 5, "stop": ("e", "ab")},
]


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("wrong_every", [1, 2, 5, 10**9])
def test_the_same_text_with_right_and_wrong_guesses(how, wrong_every):
    params = SamplingParams(**{"max_tokens": 60, **how})
    prompt = b"Any text to begin with"
    off = told(engine(noise()), prompt, SamplingParams(**{**params.__dict__, "draft": "off"}))
    eng = engine(noise())
    eng.__dict__["drafter"] = Oracle([*prompt, *off.tokens], wrong_every)
    on = told(eng, prompt, params)
    assert (on.tokens, on.text, on.reason) == (off.tokens, off.text, off.reason)
    assert eng.conversation.tokens == eng.conversation.kv.tokens
    assert on.stats.context_used == off.stats.context_used
    assert on.stats.draft.proposed > 0 or len(off.tokens) < 3
    if wrong_every == 1:
        assert on.stats.draft.accepted == 0


def loop(prefix):
    """Says what stood eight tokens ago, with a little noise: a text full of repetition."""
    logits = noise(sharpness=0.5)(prefix)
    if len(prefix) > 8:
        logits[prefix[-8]] += 6
    logits[EOS] = -20
    return logits


@pytest.mark.parametrize("how", SETTINGS)
def test_the_same_text_through_the_real_drafter(how):
    params = SamplingParams(**{"max_tokens": 200, **how})
    off = told(engine(loop), b"one two one two three", SamplingParams(**{**params.__dict__, "draft": "off"}))
    eng = engine(loop, call_s=0.0005)
    on = told(eng, b"one two one two three", params)
    assert (on.tokens, on.reason) == (off.tokens, off.reason)


def test_repetition_is_drafted_and_counted():
    eng = engine(loop, call_s=0.003)
    done = told(eng, b"one two one two three", SamplingParams(temperature=0, max_tokens=200))
    draft = done.stats.draft
    assert draft.rounds > 0 and 0 < draft.accepted <= draft.proposed
    assert len(eng._model.calls) - 2 + draft.accepted >= 198 > len(eng._model.calls)  # fewer calls than tokens


def test_drafts_never_leave_the_context():
    eng = engine(loop, EngineOptions(ctx=48))
    done = told(eng, b"one two one two three", SamplingParams(temperature=0))
    off = told(
        engine(loop, EngineOptions(ctx=48)), b"one two one two three", SamplingParams(temperature=0, draft="off")
    )
    assert done.reason == off.reason == "context_full" and done.tokens == off.tokens
    assert eng.conversation.length == 48


def three_tokens(prefix):
    """Three tokens with known chances that depend on what came before."""
    logits = np.full(258, -50.0, np.float32)
    logits[:3] = np.roll(np.float32([1.0, 0.4, -0.3]), prefix[-1] % 3)
    return logits


def test_the_drawn_distribution_is_that_of_the_model_on_and_off():
    """100,000 draws (LOCALINFER_TEST_LONG=1; else 5,000): chi-square against the exact chances, and on against off."""
    n_draws = 100_000 if os.environ.get("LOCALINFER_TEST_LONG") else 5_000
    counts = {}
    for draft in ("off", "auto"):
        found = np.zeros((3, 3), int)
        for seed in range(n_draws // 250):
            eng = engine(three_tokens, EngineOptions(ctx=256))
            guess = np.random.default_rng(seed).integers(0, 3, 300).tolist()
            eng.__dict__["drafter"] = Oracle(guess, 10**9)
            params = SamplingParams(seed=seed, max_tokens=250, temperature=1, top_k=0, top_p=1, min_p=0, draft=draft)
            done = told(eng, [0], params)
            assert done.stats.draft.proposed > 100 or draft == "off"
            np.add.at(found, ([0, *done.tokens[:-1]], done.tokens), 1)
        counts[draft] = found
    assert (counts["off"] == counts["auto"]).all() and counts["auto"].sum() == n_draws
    chances = np.stack([np.exp(three_tokens([i])[:3]) for i in range(3)])
    chances /= chances.sum(axis=1, keepdims=True)
    expected = chances * counts["auto"].sum(axis=1, keepdims=True)
    assert ((counts["auto"] - expected) ** 2 / expected).sum() < 22.5  # 6 degrees of freedom, one in a thousand
