"""What is kept for a client: property tests against a plain list."""

from hypothesis import given, strategies as st

from quarterdeck.http.sse import EventBuffer, ReplayLimits

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 40)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("seek"), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 10), st.integers(1, 120))
def test_a_reader_gets_every_message_once_and_in_order_or_is_told_how_many_it_missed(
    steps: list[tuple[str, int]], messages: int, size: int
) -> None:
    buffer = EventBuffer(ReplayLimits(messages, size))
    sent: list[bytes] = []
    expected = 1  # the number the reader waits for
    for step, number in steps:
        match step:
            case "put":
                sent.append(b"x" * number)
                buffer.put(sent[-1])
                kept = sent[buffer.first - 1 :]
                assert len(kept) <= messages
                assert len(kept) == 1 or sum(map(len, kept)) <= size
            case "take":
                expected += buffer.seek(buffer.position)
                for taken, message in buffer.take():
                    assert (taken, message) == (expected, sent[expected - 1])
                    expected += 1
            case _:
                wanted = min(max(1, number), len(sent) + 1)
                expected = wanted + buffer.seek(wanted)
                assert buffer.position == expected
    assert buffer.last == len(sent)
    expected += buffer.seek(buffer.position)
    waiting = sent[expected - 1 :]
    is_behind = len(waiting) * 2 >= messages or sum(map(len, waiting)) * 2 >= size
    assert buffer.is_behind == is_behind


def test_all_that_waits_is_taken_in_batches() -> None:
    buffer = EventBuffer(ReplayLimits())
    for _ in range(10):
        buffer.put(b"x" * 30_000)
    batches = []
    while batch := buffer.take():
        batches.append(len(batch))
    assert batches == [3, 3, 3, 1]
