"""Optional parts of other distributions."""

from __future__ import annotations

import pytest

from gnnperf.cli import main
from gnnperf.core.errors import InputError
from gnnperf.core.plugins import load_plugin, plugin_names


def test_an_entry_point_of_an_installed_distribution_is_loaded() -> None:
    assert "gnnperf" in plugin_names("console_scripts")
    assert load_plugin("console_scripts", "gnnperf", "script") is main


def test_a_name_that_nothing_offers_is_refused_with_the_names_that_exist_and_the_remedy() -> None:
    with pytest.raises(InputError, match=r"--recipe: 'none' is not installed\. .*pip install --editable ./research"):
        load_plugin("gnnperf.no_such_group", "none", "--recipe")
