"""The text format of Prometheus (0.0.4), read strictly."""
import re

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"')


def parse_metrics(text):
    """A strict reader of the text format: {family: (type, {(sample name, labels): value})}."""
    assert text.endswith("\n")
    families, current = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in families, f"{current} comes in two groups"
            families[current] = [None, {}]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and not families[name][1]
            assert kind in ("counter", "gauge", "histogram")
            families[name][0] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"no sample: {line}"
            name, labels, value = match.groups()
            kind, samples = families[current]
            endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert name in [current + ending for ending in endings], f"{name} in the group of {current}"
            assert kind != "counter" or name.endswith("_total")
            key = (name, tuple(LABEL.findall(labels or "")))
            assert key not in samples, f"{key} comes twice"
            samples[key] = float(value)
    return families
