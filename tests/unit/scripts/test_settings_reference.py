import pytest

from scripts import settings_reference


def test_the_settings_page_matches_the_models() -> None:
    assert settings_reference.PAGE.read_text(encoding="utf-8") == settings_reference.page(), (
        "write docs/settings.md again: python -m scripts.settings_reference"
    )


@pytest.mark.parametrize(
    "key",
    [
        "cluster.capacity",
        "train.max_restarts",
        "cluster.access",
        "cluster.settings.context",
        "train.settings.partition",
        "train.settings.wait_for_nodes",
    ],
)
def test_every_kind_of_setting_is_on_the_page(key: str) -> None:
    assert f"- `{key}` (" in settings_reference.page()


@pytest.mark.parametrize(
    "text",
    ["such as 30h; empty for none", "settings.excludes` (list,", "settings.requirements` (list or text,"],
)
def test_a_description_of_several_lines_is_whole_and_a_list_is_a_list(text: str) -> None:
    assert text in settings_reference.page()
