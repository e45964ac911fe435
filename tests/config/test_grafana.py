"""The dashboard and where Grafana finds it. That its expressions have data is seen in test_prometheus."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

_GRAFANA = Path(__file__).parents[2] / "config" / "grafana"
_DASHBOARD = json.loads((_GRAFANA / "dashboards" / "convertd.json").read_text())
_PANELS: list[dict[str, Any]] = _DASHBOARD["panels"]
_COLUMNS = 24


def _provisioned(name: str, key: str) -> str:
    found = re.search(rf"^ *{key}: (\S+)", (_GRAFANA / "provisioning" / name).read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _squares(panel: dict[str, Any]) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    return {(column, line) for column in columns for line in lines}


def test_the_rows_are_these() -> None:
    rows = [panel["title"] for panel in _PANELS if panel["type"] == "row"]

    assert rows == ["Requests", "Conversions", "Workers", "Money"]


def test_every_panel_can_be_shown() -> None:
    assert len({panel["id"] for panel in _PANELS}) == len(_PANELS)
    for panel in _PANELS:
        assert panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= _COLUMNS
        if panel["type"] != "row":
            assert panel["type"] in {"timeseries", "stat", "bargauge"}
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["description"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0


def test_no_panel_lies_on_another() -> None:
    for one, other in combinations(_PANELS, 2):
        assert not _squares(one) & _squares(other), (one["title"], other["title"])


def test_everything_is_asked_of_the_prometheus_that_is_provisioned() -> None:
    shown = [panel for panel in _PANELS if panel["type"] != "row"]
    asking = [*shown, *(target for panel in shown for target in panel["targets"])]
    asking += [*_DASHBOARD["templating"]["list"], *_DASHBOARD["annotations"]["list"]]

    assert {part["datasource"]["uid"] for part in asking} == {_provisioned("datasources/prometheus.yml", "uid")}


def test_the_dashboard_lies_where_it_is_looked_for() -> None:
    path = Path(_provisioned("dashboards/convertd.yml", "path"))

    assert path.relative_to("/opt/convertd") == (_GRAFANA / "dashboards").relative_to(_GRAFANA.parents[1])
