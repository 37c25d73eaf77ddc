"""What the scripts here do to gnuplot's figures."""
import re


def squeeze(svg):
    """gnuplot's SVG without what nobody sees: empty groups, blanks between elements, hundredths of a pixel."""
    declaration, svg = svg.split("\n", 1)
    svg = re.sub(r"(\d\.\d)\d+", r"\1", svg)
    svg = re.sub(r"(\d)\.0\b", r"\1", svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    if "<use " not in re.sub(r"<defs>.*?</defs>", "", svg, flags=re.DOTALL):
        svg = re.sub(r"<defs>.*?</defs>\n", "", svg, flags=re.DOTALL)
    for _ in range(3):
        svg = re.sub(r"<g [^>]*>\s*</g>\n?", "", svg)
    return declaration + "\n" + svg
