"""Where the parser is more tolerant than CommonMark: known HTML, emphasis beside letters without spaces, bare
addresses.
"""

from __future__ import annotations

import pytest

from desktop.blocks import Kind, mark_spans, split
from desktop.blocks.parser import HTML_TAGS, definitions, parse, parse_table


def words(source: str, growing: bool = False) -> str:
    """The words of a paragraph with their elements, such as `a <em>b</em>`."""
    made = []
    for token in parse(source, growing=growing):
        for child in token.children or ():
            if child.type == "link_open":
                made.append(f"<a {child.attrs['href']}>")
            elif child.nesting:
                made.append(f"<{'/' * (child.nesting < 0)}{child.tag}>")
            elif child.type.startswith("html_"):
                made.append(f"<{'/' * (child.type == 'html_close')}{child.tag}>")
            else:
                made.append({"softbreak": "\n", "hardbreak": "\\\n"}.get(child.type, child.content))
    return "".join(made)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("**「重要」**です", "<strong>「重要」</strong>です"),
        ("これは**太字。**だ", "これは<strong>太字。</strong>だ"),
        ("**이것은(중요)**입니다", "<strong>이것은(중요)</strong>입니다"),
        ("中文*（强调）*中文", "中文<em>（强调）</em>中文"),
        ("a**(b)**c", "a**(b)**c"),  # as in CommonMark
        ("snake_case_word", "snake_case_word"),
        ("H<sub>2</sub>O<BR/>x", "H<sub>2</sub>O\\\nx"),
        ("<kbd>a</kbd><u>b</u><mark>c</mark><sup>d</sup>", "<kbd>a</kbd><u>b</u><mark>c</mark><sup>d</sup>"),
        ("a <sub>b", "a <sub>b"),
        ("a </sub> b", "a </sub> b"),
        ("**a <b>c** d</b>", "<strong>a <b>c</strong> d</b>"),
        ("`<b>`", "<b>"),
        ("<script>x</script> <img src=x>", "<script>x</script> <img src=x>"),
        ("<details open>\n<summary>More</summary>", "<summary>More</summary>"),
        ("<details><summary>More</summary>hidden</details>", "<summary>More</summary>\\\nhidden"),
        ("<summary>More</summary>\nhidden", "<summary>More</summary>\\\nhidden"),
        ("<details><summary>More</summary></details>", "<summary>More</summary>"),
        ("the `x` of a <details> element", "the x of a <details> element"),
        ("words\n</details>", "words"),
        ("see www.example.org.", "see <a http://www.example.org>www.example.org</a>."),
        ("(http://a.b/c_(d)) x", "(<a http://a.b/c_(d)>http://a.b/c_(d)</a>) x"),
        ("https://a.b?x&amp;", "<a https://a.b?x&>https://a.b?x&</a>"),
        ("me@example.org, a@b", "<a mailto:me@example.org>me@example.org</a>, a@b"),
        ("[www.a.bc](http://x.y)", "<a http://x.y>www.a.bc</a>"),
        ("**http://a.bc**", "<strong><a http://a.bc>http://a.bc</a></strong>"),
        ("见http://a.bc/d。好", "见<a http://a.bc/d>http://a.bc/d</a>。好"),
        ("见 http://a.bc/d。好", "见 <a http://a.bc/d>http://a.bc/d</a>。好"),
        ("README.md and file.py", "README.md and file.py"),
        ("~one~ ~~two~~ 5~6", "<s>one</s> <s>two</s> 5~6"),
        (">" * 60 + " deep", ">" * 60 + " deep"),
        ("[" * 300 + "a](b)", "[" * 300 + "a](b)"),
        ("a* b* and 5 * 3 * 2", "a* b* and 5 * 3 * 2"),
        ("at http://a.bc/x- now", "at <a http://a.bc/x->http://a.bc/x-</a> now"),
        ("at me@a.bc- now", "at me@a.bc- now"),
        ("*a *b", "*a *b"),
        ("see *(this)* now", "see <em>(this)</em> now"),
        ("a<br>**b**", "a\\\n<strong>b</strong>"),
        ("one\n<details>\ntwo", "one\n\ntwo"),
    ],
)
def test_words(source: str, shown: str) -> None:
    assert words(source) == shown


def test_the_words_around_an_address_are_text() -> None:
    children = parse("see http://a.b now")[1].children or ()
    assert [(child.type, child.content) for child in children] == [
        ("text", "see "), ("link_open", ""), ("text", "http://a.b"), ("link_close", ""), ("text", " now"),
    ]  # fmt: skip


def test_only_the_space_after_a_break_changes() -> None:
    children = parse("a<br>**b**<br>\nc")[1].children or ()
    assert [child.type for child in children if child.type != "text" or child.content.strip()] == [
        "text", "hardbreak", "strong_open", "text", "strong_close", "hardbreak", "text",
    ]  # fmt: skip


@pytest.mark.parametrize("tag", sorted(HTML_TAGS - {"summary"}))
def test_known_html_is_an_element_and_keeps_its_words(tag: str) -> None:
    assert words(f"a <{tag}>b</{tag}> c") == f"a <{tag}>b</{tag}> c"
    assert words(f"a <{tag} class='x'>b</{tag}> c") == f"a <{tag}>b</{tag}> c"


def test_definitions_are_known_to_other_paragraphs() -> None:
    found, other = definitions("[a]: /x\n[B c]: <y z> 'title'\n")
    assert not other
    assert [
        token.attrs["href"]
        for token in parse("[A] [b  C]", found)[1].children or ()
        if token.type == "link_open"
    ] == ["/x", "y%20z"]
    assert definitions("[a]: /x\nwords\n")[1]
    assert [block.kind for block in split("Words [a].\n\n[a]: /x\n")] == [Kind.PROSE, Kind.MARKUP]


def test_a_table_has_as_many_cells_in_each_row_as_in_its_head() -> None:
    rows = parse_table("| a | b | c |\n| :-- | :-: | --: |\n| *x* |\n| 1 | 2\\|3 | 4 | 5 |\n")
    assert [[cell.side for cell in row] for row in rows] == [["left", "center", "right"]] * 3
    assert [["".join(part.content for part in cell.children) for cell in row] for row in rows] == [
        ["a", "b", "c"], ["x", "", ""], ["1", "2|3", "4"],
    ]  # fmt: skip


def test_details_are_no_text() -> None:
    [first, *_, last] = [
        block for block in split("<details>\n\nwords\n\n</details>\n") if block.source.strip()
    ]
    assert (first.body, last.body) == ("", "")
    assert (
        split("More details follow, as in <details>.\n")[0].body == "More details follow, as in <details>.\n"
    )


@pytest.mark.parametrize("name", ["NOTE", "Tip", "important", "WARNING", "CAUTION"])
def test_an_alert_is_a_quote_with_a_name(name: str) -> None:
    [block] = split(f"> [!{name}]\n> Words.\n> - item\n")
    assert (block.kind, block.alert, block.body) == (Kind.QUOTE, name.lower(), "Words.\n- item\n")
    assert split(f"> [!{name}] words\n")[0].alert == ""
    assert split("> [!OTHER]\n> words\n")[0].alert == ""
    long = split(f"> [!{name}]\n" + "> words and more words\n" * 200)
    assert len(long) > 1
    assert {block.alert for block in long} == {name.lower()}
    assert "".join(block.body for block in long).count("words") == 400


@pytest.mark.parametrize("source", ["[a](\\(b\\))", "[a](x$b$y)", "[a](http://x.y/$b$)"])
def test_the_address_of_a_link_has_no_formulas(source: str) -> None:
    assert mark_spans(source) == (source, {})
