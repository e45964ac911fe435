"""The Grafana dashboard and its provisioning. test_prometheus checks that its expressions return data."""

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


def test_row_titles() -> None:
    rows = [panel["title"] for panel in _PANELS if panel["type"] == "row"]

    assert rows == ["Requests", "Conversions", "Workers", "Cluster", "Money", "Webhooks", "Jobs"]


def test_panels_are_complete() -> None:
    assert len({panel["id"] for panel in _PANELS}) == len(_PANELS)
    for panel in _PANELS:
        assert panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= _COLUMNS
        if panel["type"] != "row":
            assert panel["type"] in {"timeseries", "stat", "bargauge"}
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["description"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0


def test_panels_without_a_time_axis_have_thresholds() -> None:
    panels = {one["title"]: one["fieldConfig"]["defaults"] for one in _PANELS if one["type"] in {"stat", "bargauge"}}

    for defaults in panels.values():  # Grafana's own default shows values from 80 in red
        assert defaults["thresholds"]["steps"][0]["value"] is None
    for title in ("Ready", "Sandbox layers"):
        colors = {step["value"]: step["color"] for step in panels[title]["thresholds"]["steps"]}
        assert colors == {None: "red", 1: "green"}
    assert [step["color"] for step in panels["Accounts"]["thresholds"]["steps"]] == ["blue"]


def test_panels_do_not_overlap() -> None:
    for one, other in combinations(_PANELS, 2):
        assert not _squares(one) & _squares(other), (one["title"], other["title"])


def test_all_queries_use_the_provisioned_data_source() -> None:
    shown = [panel for panel in _PANELS if panel["type"] != "row"]
    parts = [*shown, *(target for panel in shown for target in panel["targets"])]
    parts += [*_DASHBOARD["templating"]["list"], *_DASHBOARD["annotations"]["list"]]

    assert {part["datasource"]["uid"] for part in parts} == {_provisioned("datasources/prometheus.yml", "uid")}


def test_dashboard_path_matches_the_provisioning() -> None:
    path = Path(_provisioned("dashboards/convertd.yml", "path"))

    assert path.relative_to("/opt/convertd") == (_GRAFANA / "dashboards").relative_to(_GRAFANA.parents[1])
