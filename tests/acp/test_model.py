from quarterdeck.acp import Unknown


def test_unknown_variants_are_compared_by_what_they_hold() -> None:
    one = Unknown("ContentBlock", "smell", {"type": "smell", "of": [1]})
    same = Unknown("ContentBlock", "smell", {"type": "smell", "of": [1]})
    other = Unknown("ContentBlock", "smell", {"type": "smell"})
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != {"type": "smell", "of": [1]}


def test_an_unknown_variant_shows_its_union_and_tag() -> None:
    unknown = Unknown("ContentBlock", "smell", {})
    assert repr(unknown) == "Unknown(union='ContentBlock', tag='smell', data={})"
