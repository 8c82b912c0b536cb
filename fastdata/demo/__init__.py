"""Generate, pack, load, train and report, in two minutes: ``fastdata demo``."""

from fastdata.demo.results import DemoReport, Loading
from fastdata.demo.run import demo
from fastdata.demo.show import render, to_json

__all__ = ["DemoReport", "Loading", "demo", "render", "to_json"]
