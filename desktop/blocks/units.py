r"""Numbers and units, `\SI`, `\qty`, `\si`, `\unit`, `\num` and `\ang` of the LaTeX package siunitx (its
manual, version 3), in the LaTeX of plain mathematics.
"""

from __future__ import annotations

import re

__all__ = ["angle", "number", "quantity", "unit"]

_PREFIXES = {
    "quecto": "q", "ronto": "r", "yocto": "y", "zepto": "z", "atto": "a", "femto": "f", "pico": "p",
    "nano": "n", "micro": "\u00b5", "milli": "m", "centi": "c", "deci": "d", "deca": "da", "deka": "da",
    "hecto": "h", "kilo": "k", "mega": "M", "giga": "G", "tera": "T", "peta": "P", "exa": "E", "zetta": "Z",
    "yotta": "Y", "ronna": "R", "quetta": "Q", "kibi": "Ki", "mebi": "Mi", "gibi": "Gi",
}  # fmt: skip
_SHORT = (
    "km cm mm nm kg mg g m s ms ns Hz kHz MHz GHz N kN Pa kPa MPa J kJ eV keV MeV GeV W kW MW V mV kV A mA "
    "K mol l ml L mL h min T C F"
)
_UNITS = {
    "ampere": "A", "candela": "cd", "kelvin": "K", "kilogram": "kg", "gram": "g", "metre": "m", "meter": "m",
    "mole": "mol", "second": "s", "becquerel": "Bq", "coulomb": "C", "farad": "F", "gray": "Gy",
    "hertz": "Hz", "henry": "H", "joule": "J", "katal": "kat", "lumen": "lm", "lux": "lx", "newton": "N",
    "ohm": "\u03a9", "pascal": "Pa", "radian": "rad", "siemens": "S", "sievert": "Sv", "steradian": "sr",
    "tesla": "T", "volt": "V", "watt": "W", "weber": "Wb", "day": "d", "hour": "h", "minute": "min",
    "litre": "l", "liter": "L", "tonne": "t", "hectare": "ha", "dalton": "Da", "electronvolt": "eV",
    "bel": "B", "decibel": "dB", "neper": "Np", "bit": "bit", "byte": "B", "bar": "bar",
    "astronomicalunit": "au", "angstrom": "\u00c5", "percent": "%", "degree": "\u00b0",
    "degreeCelsius": "\u00b0C", "celsius": "\u00b0C", "arcminute": "\u2032", "arcsecond": "\u2033",
    "micron": "\u00b5m", "um": "\u00b5m", "us": "\u00b5s", **{name: name for name in _SHORT.split()},
}  # fmt: skip
_POWERS = {"squared": "2", "cubed": "3"}
_MACRO = re.compile(r"\\([A-Za-z]+)\s*(?:\{([^{}]*)\})?")
_NUMBER = re.compile(
    r"([+-]?[0-9., ]*)(?:\(([0-9.]+)\))?(?:(?:\+-|\\pm)\s*([0-9.]+))?(?:[eEdD]([+-]?[0-9]+))?$"
)


def number(text: str) -> str:
    """LaTeX for a number; powers of ten and uncertainties are written out."""
    found = _NUMBER.match(text.strip())
    if found is None:
        return text
    digits, brackets, plus_minus, power = found.groups()
    made = digits.replace(" ", "").replace(",", "" if "." in digits else ".")
    made += f"({brackets})" if brackets else ""
    made += f" \\pm {plus_minus}" if plus_minus else ""
    if not power:
        return made
    if plus_minus:
        made = f"({made})"
    return (
        f"{made} \\times 10^{{{power.removeprefix('+')}}}"
        if made not in ("", "+", "-")
        else f"{made}10^{{{power.removeprefix('+')}}}"
    )


def unit(text: str) -> str:
    """LaTeX for a unit, of macros such as `\\metre\\per\\second` or of letters such as `m/s`."""
    if "\\" not in text:
        parts = re.sub(r"\^\{?(-?[0-9]+)\}?", r"}^{\1}\\mathrm{", text.strip())
        parts = re.sub(r"[.~]|\s+", r"}\\,\\mathrm{", parts)
        return f"\\mathrm{{{parts}}}".replace("\\mathrm{}", "").replace("%", r"\%")
    made: list[str] = []
    prefix = pending = ""
    per = False
    for found in _MACRO.finditer(text):
        name, given = found[1], found[2]
        if name == "per":
            per = True
        elif name in ("square", "cubic"):
            pending = "2" if name == "square" else "3"
        elif name in ("squared", "cubed", "tothe", "raiseto") and name != "raiseto":
            power = _POWERS.get(name, given or "")
            base, _, sign = (made.pop() if made else "").partition("^")
            made.append(f"{base}^{{{'-' if '-' in sign else ''}{power}}}")
        elif name in _PREFIXES:
            prefix += _PREFIXES[name]
        elif name not in ("of",):
            letters = (prefix + _UNITS.get(name, name)).replace("%", r"\%")
            power = f"{'-' if per else ''}{pending or ('1' if per else '')}"
            made.append(f"\\mathrm{{{letters}}}" + (f"^{{{power}}}" if power else ""))
            prefix, pending, per = "", "", False
    return r"\,".join(made)


def quantity(value: str, of: str) -> str:
    """LaTeX for a number with its unit."""
    shown = unit(of)
    close = shown.startswith(("\\mathrm{\u00b0}", "\\mathrm{\u2032}", "\\mathrm{\u2033}"))
    return f"{number(value)}{'' if close else chr(92) + ','}{shown}"


def angle(text: str) -> str:
    """LaTeX for an angle in degrees, or in degrees, minutes and seconds separated by semicolons."""
    return "".join(
        f"{number(part)}{sign}"
        for part, sign in zip(text.split(";"), ("^{\\circ}", "'", "''"), strict=False)
        if part.strip()
    )
