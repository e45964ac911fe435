"""SVG drawings in the manner of the programs that write most of them, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NAMES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
_HTML = 'xmlns="http://www.w3.org/1999/xhtml"'


def _svg(body: str, width: int = 200, height: int = 120, attributes: str = "") -> str:
    return f'<svg {_NAMES} width="{width}" height="{height}" viewBox="0 0 {width} {height}" {attributes}>{body}</svg>'


def _figma() -> dict[str, str]:
    shadow = (
        '<filter id="f" x="0" y="0" width="200" height="120" filterUnits="userSpaceOnUse" '
        'color-interpolation-filters="sRGB"><feFlood flood-opacity="0" result="BackgroundImageFix"/>'
        '<feColorMatrix in="SourceAlpha" values="0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 127 0" result="hardAlpha"/>'
    )
    drop = (
        '<feOffset dy="4"/><feGaussianBlur stdDeviation="6"/><feComposite in2="hardAlpha" operator="out"/>'
        '<feColorMatrix values="0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0.5 0"/>'
        '<feBlend in2="BackgroundImageFix" result="effect1"/><feBlend in="SourceGraphic" in2="effect1"/></filter>'
    )
    inner = (
        '<feBlend in="SourceGraphic" in2="BackgroundImageFix" result="shape"/><feOffset dy="6" in="hardAlpha"/>'
        '<feGaussianBlur stdDeviation="5"/><feComposite in2="hardAlpha" operator="arithmetic" k2="-1" k3="1"/>'
        '<feColorMatrix values="0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0.6 0"/><feBlend in2="shape"/></filter>'
    )
    card = '<rect x="20" y="16" width="160" height="80" rx="12" fill="#4F46E5"/>'
    return {
        "figma_drop_shadow": _svg(
            f'<g filter="url(#f)">{card}</g><defs>{shadow}{drop}</defs>', attributes='fill="none"'
        ),
        "figma_inner_shadow": _svg(
            f'<g filter="url(#f)">{card}</g><defs>{shadow}{inner}</defs>', attributes='fill="none"'
        ),
        "figma_display_p3": _svg(
            '<rect width="100" height="120" fill="#4F46E5" style="fill:#4F46E5;'
            'fill:color(display-p3 0.3098 0.2745 0.8980);fill-opacity:1;"/>'
            '<circle cx="150" cy="60" r="40" fill="#FF5C00" style="fill:color(display-p3 1 0.36 0);fill-opacity:1"/>'
        ),
        "figma_alpha_mask": _svg(
            '<mask id="m" style="mask-type:alpha" maskUnits="userSpaceOnUse" x="0" y="0" width="200" height="120">'
            '<circle cx="100" cy="60" r="50" fill="#D9D9D9"/></mask><g mask="url(#m)">'
            '<rect width="100" height="120" fill="#E11D48"/><rect x="100" width="100" height="120" fill="#0EA5E9"/></g>'
        ),
        "figma_blend": _svg(
            '<rect width="200" height="120" fill="#FDE68A"/><g style="mix-blend-mode:multiply">'
            '<circle cx="80" cy="60" r="45" fill="#22D3EE"/></g><g style="mix-blend-mode:color-burn" opacity="0.8">'
            '<circle cx="125" cy="60" r="45" fill="#F472B6"/></g>'
        ),
        "figma_angular_gradient": _svg(
            '<g clip-path="url(#c)"><foreignObject x="0" y="0" width="200" height="120"><div '
            f'{_HTML} style="background:conic-gradient(from 90deg,#f00,#0f0,#00f,#f00);height:100%;width:100%"></div>'
            '</foreignObject></g><rect x="150" y="10" width="40" height="40" fill="#333"/>'
            '<defs><clipPath id="c"><rect x="20" y="20" width="80" height="80" rx="8"/></clipPath></defs>'
        ),
    }


def _inkscape() -> dict[str, str]:
    names = (
        'xmlns:inkscape="http://www.inkscape.org/namespaces/inkscape" xmlns:svg="http://www.w3.org/2000/svg" '
        'xmlns:sodipodi="http://sodipodi.sourceforge.net/DTD/sodipodi-0.dtd"'
    )
    view = '<sodipodi:namedview id="base" pagecolor="#ffffff" inkscape:zoom="1.4"/>'
    return {
        "inkscape_blur": _svg(
            '<defs><filter id="b" x="-.3" y="-.3" width="1.6" height="1.6"><feGaussianBlur stdDeviation="6"/></filter>'
            f'</defs>{view}<g inkscape:label="Layer 1" inkscape:groupmode="layer"><ellipse cx="100" cy="80" rx="70" '
            'ry="20" style="opacity:.6;fill:#000;filter:url(#b)"/><rect x="60" y="20" width="80" height="50" '
            'style="fill:#ee1111;stroke:#000;stroke-width:2;paint-order:markers stroke fill"/></g>',
            attributes=names,
        ),
        "inkscape_millimetres": f'<svg {_NAMES} {names} width="50mm" height="30mm" viewBox="0 0 50 30">{view}'
        '<g transform="translate(-5,-5)"><path style="fill:#88aaee;fill-rule:evenodd;stroke:#223366;stroke-width:.5" '
        'd="m 10,10 h 40 v 20 H 10 Z m 8,5 v 10 h 10 V 15 Z"/><circle style="fill:none;stroke:#d40000;'
        'stroke-width:1;stroke-dasharray:2, 1;stroke-dashoffset:.5" cx="42" cy="20" r="6"/></g></svg>',
        "inkscape_text_spans": _svg(
            '<text xml:space="preserve" style="font-size:18px;line-height:1.25;font-family:\'DejaVu Serif\';'
            '-inkscape-font-specification:\'DejaVu Serif, Normal\';fill:#003300" x="10" y="30">'
            '<tspan sodipodi:role="line" x="10" y="30">First line</tspan><tspan sodipodi:role="line" x="10" y="60">'
            'Second <tspan style="font-weight:bold;fill:#aa0000">bold</tspan></tspan><tspan x="10" y="90" '
            'style="font-style:italic;text-decoration:underline">under</tspan></text>',
            attributes=names,
        ),
        "inkscape_clone_clip": _svg(
            '<defs><clipPath id="c" clipPathUnits="userSpaceOnUse"><path d="M10 10h80v80H10zM30 30h40v40H30z" '
            'style="clip-rule:evenodd"/></clipPath><linearGradient id="a"><stop style="stop-color:#f80;stop-opacity:1" '
            'offset="0"/><stop style="stop-color:#f80;stop-opacity:0" offset="1"/></linearGradient><linearGradient '
            'xlink:href="#a" id="g" gradientUnits="userSpaceOnUse" x1="10" y1="50" x2="90" y2="50"/></defs>'
            '<g id="s"><rect width="100" height="100" style="fill:url(#g)" clip-path="url(#c)"/></g>'
            '<use xlink:href="#s" x="0" y="0" transform="matrix(-1,0,0,1,200,10)"/>'
        ),
        "inkscape_pattern": _svg(
            '<defs><pattern id="p" patternUnits="userSpaceOnUse" width="12" height="12" patternTransform="rotate(30)">'
            '<rect width="6" height="12" style="fill:#0a0"/></pattern></defs><rect x="10" y="10" width="180" '
            'height="100" ry="15" style="fill:url(#p);stroke:#060;stroke-width:3;stroke-linejoin:round"/>'
        ),
    }


def _illustrator() -> dict[str, str]:
    prolog = (
        '<?xml version="1.0" encoding="utf-8"?><!-- Generator: Adobe Illustrator 27.0 --><!DOCTYPE svg PUBLIC '
        '"-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd" [\n'
        '\t<!ENTITY ns_extend "http://ns.adobe.com/Extensibility/1.0/">\n'
        '\t<!ENTITY ns_ai "http://ns.adobe.com/AdobeIllustrator/10.0/">\n'
        '\t<!ENTITY st0 "fill:#7B3F99;stroke:#000000;stroke-miterlimit:10;">\n]>'
    )
    return {
        "illustrator_entities": f'{prolog}<svg version="1.1" xmlns:x="&ns_extend;" xmlns:i="&ns_ai;" {_NAMES} x="0px" '
        'y="0px" width="200px" height="120px" viewBox="0 0 200 120" style="enable-background:new 0 0 200 120;" '
        'xml:space="preserve"><switch><foreignObject requiredExtensions="&ns_ai;" x="0" y="0" width="1" height="1">'
        '<i:pgfRef xlink:href="#adobe_illustrator_pgf"/></foreignObject><g i:extraneous="self"><rect x="20" y="20" '
        'style="&st0;" width="160" height="80"/><circle cx="100" cy="60" r="30" fill="#FFDE17"/></g></switch></svg>',
        "illustrator_classes": _svg(
            '<style type="text/css">.st0{fill:#ED1C24;}.st1{clip-path:url(#b);}.st2{fill:none;stroke:#231F20;'
            "stroke-width:4;stroke-linecap:round;}.st3{font-family:'DejaVuSans';}.st4{font-size:20px;}</style>"
            '<defs><circle id="a" cx="60" cy="60" r="45"/></defs><clipPath id="b"><use xlink:href="#a" '
            'style="overflow:visible;"/></clipPath><g class="st1"><rect class="st0" width="70" height="120"/></g>'
            '<path class="st2" d="M120,20c30,0,60,40,60,80"/>'
        ),
        "illustrator_svg_data": '<svg id="Layer_1" data-name="Layer 1" xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 200 120"><defs><style>.cls-1,.cls-2{stroke:#fff;}'
        ".cls-1{fill:url(#a);isolation:isolate;opacity:.8;}.cls-2{fill:#0071bc;mix-blend-mode:screen;stroke-width:.75rem}"
        '</style><radialGradient id="a" cx="70" cy="60" r="50" gradientUnits="userSpaceOnUse"><stop offset="0" '
        'stop-color="#f7931e"/><stop offset="1" stop-color="#c1272d"/></radialGradient></defs>'
        '<circle class="cls-1" cx="70" cy="60" r="50"/><circle class="cls-2" cx="130" cy="60" r="44"/></svg>',
        "illustrator_opacity_mask": _svg(
            '<defs><linearGradient id="g" x1="0" y1="0" x2="200" y2="0" gradientUnits="userSpaceOnUse">'
            '<stop offset="0" style="stop-color:#FFFFFF"/><stop offset="1" style="stop-color:#000000"/>'
            '</linearGradient></defs><mask id="m" maskUnits="userSpaceOnUse" x="0" y="0" width="200" height="120">'
            '<rect width="200" height="120" fill="url(#g)"/></mask><g style="mask:url(#m)"><rect x="10" y="10" '
            'width="180" height="100" style="fill:#009245"/></g>'
        ),
    }


def _badges() -> dict[str, str]:
    def badge(style: str, face: str, extra: str) -> str:
        return (
            f'<svg {_NAMES} width="120" height="20" role="img" aria-label="build: passing"><title>build: passing'
            f'</title>{style}<g clip-path="url(#r)"><rect width="47" height="20" fill="#555"/><rect x="47" width="73" '
            f'height="20" fill="{face}"/><rect width="120" height="20" fill="url(#s)"/></g><g fill="#fff" '
            'text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" '
            f'text-rendering="geometricPrecision" font-size="110">{extra}<text x="245" y="140" transform="scale(.1)" '
            'fill="#fff" textLength="270">build</text><text x="825" y="140" transform="scale(.1)" fill="#fff" '
            'textLength="430">passing</text></g></svg>'
        )

    gloss = (
        '<linearGradient id="s" x2="0" y2="100%"><stop offset="0" stop-color="#bbb" stop-opacity=".1"/><stop '
        'offset="1" stop-opacity=".1"/></linearGradient><clipPath id="r"><rect width="120" height="20" rx="3" '
        'fill="#fff"/></clipPath>'
    )
    shade = (
        '<text aria-hidden="true" x="245" y="150" fill="#010101" fill-opacity=".3" transform="scale(.1)" '
        'textLength="270">build</text>'
    )
    logo = (
        "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCAyNCAyNCI+PGNp"
        "cmNsZSBjeD0iMTIiIGN5PSIxMiIgcj0iMTAiIGZpbGw9IiNmYzAiLz48L3N2Zz4="
    )
    return {
        "shields_flat": badge(gloss, "#4c1", shade),
        "shields_social_logo": f'<svg {_NAMES} width="110" height="24"><style>a:hover #llink{{fill:url(#b);stroke:#ccc}}'
        '</style><linearGradient id="a" x2="0" y2="100%"><stop offset="0" stop-color="#fcfcfc" stop-opacity="0"/><stop '
        'offset="1" stop-opacity=".1"/></linearGradient><g stroke="#d5d5d5"><rect stroke="none" fill="#fcfcfc" x="0.5" '
        'y="0.5" width="60" height="23" rx="2"/><rect x="68.5" y="0.5" width="40" height="23" rx="2" fill="#fafafa"/>'
        f'</g><image x="5" y="5" width="14" height="14" href="{logo}"/><g fill="#333" text-anchor="middle" '
        'font-family="Helvetica Neue,Helvetica,Arial,sans-serif" font-weight="700" font-size="110px" '
        'line-height="14px"><text x="385" y="165" transform="scale(.1)" textLength="270">Star</text></g></svg>',
        "shields_for_the_badge": f'<svg {_NAMES} width="140" height="28" role="img"><g shape-rendering="crispEdges">'
        '<rect width="70" height="28" fill="#555"/><rect x="70" width="70" height="28" fill="#007ec6"/></g><g '
        'fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" '
        'text-rendering="geometricPrecision" font-size="100"><text transform="scale(.1)" x="350" y="175" '
        'textLength="460" fill="#fff">LICENSE</text><text transform="scale(.1)" x="1050" y="175" textLength="253" '
        'fill="#fff" font-weight="bold">MIT</text></g></svg>',
    }


def _d3() -> dict[str, str]:
    bars = "".join(
        f'<rect x="{20 + 30 * n}" y="{100 - h}" width="24" height="{h}"/>' for n, h in enumerate((30, 70, 50, 85))
    )
    ticks = "".join(
        f'<g class="tick" opacity="1" transform="translate(0,{y}.5)"><line stroke="currentColor" x2="-6"/><text '
        f'fill="currentColor" x="-9" dy="0.32em">{v}</text></g>'
        for y, v in ((100, 0), (60, 40), (20, 80))
    )
    links = "".join(
        f'<line x1="100" y1="60" x2="{x}" y2="{y}"/>' for x, y in ((30, 20), (170, 25), (40, 100), (160, 95))
    )
    nodes = "".join(
        f'<circle r="8" cx="{x}" cy="{y}"/>' for x, y in ((30, 20), (170, 25), (40, 100), (160, 95), (100, 60))
    )
    return {
        "d3_bars": _svg(
            f'<g fill="rgb(70 130 180 / 80%)">{bars}</g><g transform="translate(18,0)" fill="none" font-size="10" '
            f'font-family="sans-serif" text-anchor="end"><path class="domain" stroke="currentColor" '
            f'd="M-6,100.5H0.5V20.5H-6"/>{ticks}</g>',
            attributes='style="max-width:100%;height:auto;height:intrinsic;"',
        ),
        "d3_force": _svg(
            f'<g stroke="#999" stroke-opacity="60%" stroke-width="2">{links}</g><g stroke="#fff" stroke-width="1.5" '
            f'fill="hsl(210 60% 45%)">{nodes}</g>'
        ),
        "d3_pie": _svg(
            '<g transform="translate(100,60)"><path fill="hsl(10deg 70% 50%)" d="M0,-50A50,50,0,0,1,43.3,25L0,0Z"/>'
            '<path fill="hsla(130, 50%, 40%, 70%)" d="M43.3,25A50,50,0,0,1,-43.3,25L0,0Z"/><path '
            'fill="oklch(0.6 0.15 250)" d="M-43.3,25A50,50,0,0,1,0,-50L0,0Z"/></g>'
        ),
        "d3_stylesheet": _svg(
            "<style>:root{--line:#e4572e;--w:3px}svg{background:#f4f4f8}.line{fill:none;stroke:var(--line);"
            "stroke-width:var(--w);vector-effect:non-scaling-stroke}.dot:not(.off){fill:var(--dot,#17bebb)}"
            ".axis text{font:italic 12px 'DejaVu Sans',sans-serif}@media print{.line{stroke:black}}"
            'g > circle:nth-child(2){fill:#76b041}</style><g transform="scale(2 1)"><path class="line" '
            'd="M5,100L30,40L60,70L95,10"/></g><g><circle class="dot" cx="60" cy="40" r="6"/><circle class="off" '
            'cx="120" cy="70" r="6"/><circle class="dot" cx="190" cy="10" r="6"/></g><g class="axis"><text x="10" '
            'y="115">time →</text></g>'
        ),
        "d3_labels": _svg(
            '<g font-family="DejaVu Sans" font-size="11" dominant-baseline="middle" text-anchor="middle" '
            'stroke-linejoin="round" stroke-width="3" paint-order="stroke" stroke="white"><rect width="200" '
            'height="120" fill="#cde" stroke="none"/><text x="100" y="30">alpha <tspan font-weight="bold" '
            'fill-opacity="0.7">1,234</tspan></text><text x="100" y="60" transform="rotate(-20 100 60)">rotated</text>'
            '<text x="50%" y="100" dy="0.35em">half</text></g>'
        ),
    }


def _excalidraw() -> dict[str, str]:
    def drawing(body: str, style: str = "") -> str:
        return (
            '<svg version="1.1" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 120" width="200" height="120">'
            f'<!-- svg-source:excalidraw --><metadata></metadata><defs><style class="style-fonts">{style}</style></defs>'
            f'<rect x="0" y="0" width="200" height="120" fill="#ffffff"></rect>{body}</svg>'
        )

    rough = "M1.1 0.4 C20.7 1.2, 60.2 -1.1, 98.8 0.7 M0.2 -0.9 C40.1 0.1, 70.9 1.4, 99.6 -0.4"
    return {
        "excalidraw_shapes": drawing(
            f'<g stroke-linecap="round" transform="translate(20 20) rotate(0 50 30)"><path d="{rough}" '
            f'stroke="#1e1e1e" stroke-width="2" fill="none"></path></g><g stroke-linecap="round" '
            'transform="translate(20 20) rotate(5 75 40)"><path d="M0 10 L150 0 L140 70 L10 75 Z" stroke="none" '
            'stroke-width="0" fill="#a5d8ff"></path><path d="M10 70 L30 5 M40 72 L60 4 M70 72 L92 3" '
            'stroke="#1971c2" stroke-width="0.5" stroke-dasharray="1.5 7" fill="none"></path></g>'
        ),
        "excalidraw_text": drawing(
            '<g transform="translate(20 40) rotate(0 60 12)"><text x="60" y="17" font-family="DejaVu Sans, '
            'Segoe UI Emoji" font-size="20px" fill="#e03131" text-anchor="middle" style="white-space: pre;" '
            'direction="ltr" dominant-baseline="alphabetic">Hello  you</text></g>',
            "@font-face{font-family:Excalifont;src:url(data:font/woff2;base64,AAAA)}",
        ),
        "excalidraw_arrow_mask": drawing(
            '<g stroke-linecap="round"><g transform="translate(20 60)" mask="url(#mask-a)"><path d="M0 0 C50 -30, '
            '100 30, 160 0" stroke="#2f9e44" stroke-width="3" fill="none"></path><path d="M145 -8 L160 0 L146 9" '
            'stroke="#2f9e44" stroke-width="3" fill="none"></path></g></g><mask id="mask-a"><rect x="0" y="0" '
            'fill="#fff" width="200" height="120"></rect><rect x="70" y="45" fill="#000" width="50" height="30" '
            'opacity="1"></rect></mask>'
        ),
    }


def _plotly() -> dict[str, str]:
    def plot(body: str) -> str:
        return (
            f'<svg class="main-svg" {_NAMES} width="200" height="120" style="background: rgb(229, 236, 246);" '
            f'viewBox="0 0 200 120"><defs id="d"><g class="clips"><clipPath id="c" class="plotclip"><rect width="160" '
            f'height="80"/></clipPath></g></defs><rect x="30" y="10" width="160" height="80" style="fill: '
            f'rgb(255, 255, 255); fill-opacity: 1; stroke-width: 0;"/>{body}</svg>'
        )

    text = "font-family: 'Open Sans', verdana, arial, sans-serif; font-size: 12px; fill: rgb(42, 63, 95);"
    return {
        "plotly_lines": plot(
            '<g transform="translate(30,10)" clip-path="url(#c)"><path class="js-line" '
            'd="M-10,70L40,20L80,60L170,5" style="vector-effect: none; fill: none; stroke: rgb(99, 110, 250); '
            'stroke-opacity: 1; stroke-width: 2px; opacity: 1;"/><path class="crisp" d="M0,40h160" style="stroke: '
            'rgb(0, 0, 0); stroke-opacity: 0.3; stroke-dasharray: 3px, 3px; stroke-width: 1px;"/></g>'
        ),
        "plotly_markers": plot(
            '<g transform="translate(30,10)"><path class="point" transform="translate(40,30)" '
            'd="M8,0A8,8 0 1,1 0,-8A8,8 0 0,1 8,0Z" style="opacity: 0.7; stroke-width: 1px; fill: rgb(239, 85, 59); '
            'stroke: rgb(68, 68, 68);"/><path transform="translate(110,50)scale(1.5)" d="M0,-8L8,8H-8Z" '
            'style="fill: rgba(0, 204, 150, 0.5); vector-effect: non-scaling-stroke; stroke: #000; '
            'stroke-width: 2px;"/></g>'
        ),
        "plotly_text": plot(
            f'<text text-anchor="middle" x="110" y="108" style="{text} white-space: pre;">x  axis</text>'
            f'<text class="ytitle" transform="rotate(-90,18,50)" x="18" y="50" text-anchor="middle" '
            f'style="{text} font-weight: bold;">count</text>'
            '<rect class="bg" x="120" y="16" width="60" height="24" style="stroke: rgb(68, 68, 68); '
            'fill: rgb(255, 255, 255); fill-opacity: 50%; stroke-width: 1px;"/>'
        ),
    }


def _drawio() -> dict[str, str]:
    def label(text: str, x: int, y: int, html: str = "") -> str:
        return (
            '<g transform="translate(-0.5 -0.5)"><switch><foreignObject pointer-events="none" width="100%" '
            'height="100%" requiredFeatures="http://www.w3.org/TR/SVG11/feature#Extensibility" '
            f'style="overflow: visible; text-align: left;"><div {_HTML} style="display: flex; align-items: unsafe '
            f"center; justify-content: unsafe center; width: 78px; height: 1px; padding-top: {y - 4}px; "
            f'margin-left: {x - 39}px;"><div style="box-sizing: border-box; font-size: 0px; text-align: center;"><div '
            'style="display: inline-block; font-size: 12px; font-family: &quot;DejaVu Sans&quot;; color: rgb(0, 0, 0); '
            f'line-height: 1.2;">{html or text}</div></div></div></foreignObject><text x="{x}" y="{y}" '
            f'fill="rgb(0, 0, 0)" font-family="&quot;DejaVu Sans&quot;" font-size="12px" text-anchor="middle">{text}'
            "</text></switch></g>"
        )

    colors = "fill: light-dark(#dae8fc, #1d293b); stroke: light-dark(rgb(108, 142, 191), rgb(92, 121, 163));"
    return {
        "drawio_flow": _svg(
            '<defs/><g><rect x="10" y="10" width="80" height="40" rx="6" ry="6" fill="#dae8fc" stroke="#6c8ebf" '
            f'pointer-events="all"/>{label("Start", 50, 34)}<path d="M 90 30 L 113.63 30" fill="none" '
            'stroke="rgb(0, 0, 0)" stroke-miterlimit="10"/><path d="M 118.88 30 L 111.88 33.5 L 113.63 30 L 111.88 '
            '26.5 Z" fill="rgb(0, 0, 0)" stroke="rgb(0, 0, 0)" stroke-miterlimit="10"/><ellipse cx="155" cy="30" '
            f'rx="35" ry="20" fill="#d5e8d4" stroke="#82b366"/>{label("End", 155, 34)}</g>',
            attributes='style="background-color: rgb(255, 255, 255);"',
        ),
        "drawio_light_dark": _svg(
            f'<rect x="10" y="10" width="80" height="40" style="{colors}" fill="#dae8fc" stroke="#6c8ebf"/>'
            '<path d="M 110 30 L 180 30" style="stroke: light-dark(rgb(0, 0, 0), rgb(255, 255, 255));" '
            f'stroke-width="2"/>{label("Dark", 50, 34)}',
            attributes='style="background: #ffffff; background-color: light-dark(#ffffff, #121212); '
            'color-scheme: light dark;"',
        ),
        "drawio_shadow": _svg(
            '<g filter="drop-shadow(2px 3px 2px rgb(0 0 0 / 40%))"><path d="M 30 20 L 120 20 L 150 60 L 120 100 L 30 '
            '100 L 60 60 Z" fill="#ffe6cc" stroke="#d79b00"/></g>'
            '<g style="filter: drop-shadow(rgba(0, 0, 0, 0.4) 3px 3px 2px);"><rect x="155" y="40" width="35" '
            'height="40" fill="#f8cecc" stroke="#b85450"/></g>'
        ),
    }


def _mermaid() -> dict[str, str]:
    def label(text: str, x: float, y: float) -> str:
        return (
            f'<g class="label" transform="translate({x}, {y})"><foreignObject width="40" height="24"><div {_HTML} '
            'style="display: table-cell; white-space: nowrap; line-height: 1.5; max-width: 200px; text-align: '
            f'center;"><span class="nodeLabel"><p>{text}</p></span></div></foreignObject></g>'
        )

    style = (
        "#m{font-family:'DejaVu Sans',verdana,sans-serif;font-size:14px;fill:#333;}#m .node rect{fill:#ECECFF;"
        "stroke:#9370DB;stroke-width:1px;}#m .flowchart-link{stroke:#333333;fill:none;stroke-width:2.0px;}#m .marker"
        "{fill:#333333;stroke:#333333;}#m p{margin:0;}#m .nodeLabel{color:#333;}#m .edge-animation-slow{stroke-dasharray:"
        "9,5!important;animation:dash 50s linear infinite;}@keyframes dash{to{stroke-dashoffset:0;}}#m :root"
        "{--mermaid-font-family:'DejaVu Sans',verdana,sans-serif;}"
    )
    arrow = (
        '<marker id="e" class="marker" viewBox="0 0 10 10" refX="5" refY="5" markerUnits="userSpaceOnUse" '
        'markerWidth="8" markerHeight="8" orient="auto"><path d="M 0 0 L 10 5 L 0 10 z" style="stroke-width: 1; '
        'stroke-dasharray: 1, 0;"/></marker>'
    )
    return {
        "mermaid_flowchart": f'<svg id="m" width="100%" {_NAMES} class="flowchart" style="max-width: 200px;" '
        f'viewBox="0 0 200 120" role="graphics-document"><style>{style}</style><g>{arrow}<path d="M70,60L100,60L126,60" '
        'class="edge-thickness-normal flowchart-link" marker-end="url(#e)"/><g class="node default" '
        'transform="translate(40, 60)"><rect class="basic label-container" x="-30" y="-20" width="60" height="40"/>'
        f'{label("Start", -20, -12)}</g><g class="node" transform="translate(160, 60)"><rect x="-30" y="-20" '
        f'width="60" height="40" style="fill:#bbf !important"/>{label("Stop", -20, -12)}</g></g></svg>',
        "mermaid_sequence": f'<svg id="m" {_NAMES} width="200" height="120" viewBox="-10 -5 200 120"><style>'
        "#m text.actor>tspan{fill:black;stroke:none;}#m .actor{stroke:hsl(259.6261682243, 59.7765363128%, "
        "87.9019607843%);fill:#ECECFF;}#m .messageLine0{stroke-width:1.5;stroke-dasharray:none;stroke:#333;}</style>"
        f'{arrow}<g><line x1="40" y1="40" x2="40" y2="100" stroke-width="0.5px" stroke="#999"/><rect x="0" y="0" '
        'fill="#eaeaea" stroke="#666" width="80" height="40" rx="3" ry="3" class="actor actor-top"/><text x="40" y="20" '
        'dominant-baseline="central" alignment-baseline="central" class="actor" style="text-anchor: middle; '
        'font-size: 16px; font-weight: 400; font-family: \'DejaVu Sans\';"><tspan x="40" dy="0">Alice</tspan></text>'
        '</g><line x1="41" y1="80" x2="160" y2="80" class="messageLine0" marker-end="url(#e)"/></svg>',
        "mermaid_pie": f'<svg id="m" width="200" {_NAMES} viewBox="0 0 200 120"><style>#m .pieCircle{{stroke:black;'
        'stroke-width:2px;opacity:0.7;}#m .slice{font-family:"DejaVu Sans",sans-serif;fill:#333;font-size:17px;}'
        "</style>"
        '<g transform="translate(100,60)"><path d="M0,-50A50,50,0,1,1,-47.5,-15.4L0,0Z" fill="#ECECFF" '
        'class="pieCircle"/><path d="M-47.5,-15.4A50,50,0,0,1,0,-50L0,0Z" fill="hsl(60, 100%, 73.5294117647%)" '
        'class="pieCircle"/><text transform="translate(12, 15)" class="slice" style="text-anchor: middle;">80%</text>'
        "</g></svg>",
    }


def _matplotlib() -> dict[str, str]:
    def figure(body: str) -> str:
        return (
            '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"\n '
            f' "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">\n<svg {_NAMES} width="144pt" height="90pt" '
            'viewBox="0 0 144 90" version="1.1"><metadata><rdf:RDF '
            'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/></metadata><defs><style type="text/css">*'
            '{stroke-linejoin: round; stroke-linecap: butt}</style></defs><g id="figure_1"><g id="patch_1"><path '
            f'd="M 0 90 L 144 90 L 144 0 L 0 0 z" style="fill: #ffffff"/></g>{body}</g></svg>'
        )

    return {
        "matplotlib_lines": figure(
            '<defs><path id="t" d="M 0 0 L 0 3.5" style="stroke: #000000; stroke-width: 0.8"/><path id="m" d="M 0 3 C '
            "0.8 3 1.56 2.68 2.12 2.12 C 2.68 1.56 3 0.8 3 0 C 3 -0.8 2.68 -1.56 2.12 -2.12 C 1.56 -2.68 0.8 -3 0 -3 C "
            '-1.66 -3 -3 -1.66 -3 0 C -3 1.66 -1.66 3 0 3 z" style="stroke: #1f77b4"/><clipPath id="p"><rect x="18" '
            'y="10" width="112" height="66"/></clipPath></defs><g clip-path="url(#p)"><path d="M 10 70 L 50 30 L 90 50 '
            'L 140 5" style="fill: none; stroke: #1f77b4; stroke-width: 1.5; stroke-linecap: square"/><use '
            'xlink:href="#m" x="50" y="30" style="fill: #1f77b4; stroke: #1f77b4"/><use xlink:href="#m" x="90" y="50" '
            'style="fill: #1f77b4"/></g><use xlink:href="#t" x="50" y="76" style="stroke: #000000; stroke-width: 0.8"/>'
            '<path d="M 18 76 L 18 10 M 18 76 L 130 76" style="fill: none; stroke: #000000; stroke-width: 0.8; '
            'stroke-linecap: square"/>'
        ),
        "matplotlib_text": figure(
            "<text style=\"font: 10px 'DejaVu Sans', 'Bitstream Vera Sans', sans-serif; text-anchor: middle\" x=\"72\" "
            'y="40" transform="rotate(-0 72 40)">Sample title</text><g transform="translate(40 70) rotate(-45) '
            'scale(0.1 -0.1)"><text style="font-size: 100px; font-family: \'DejaVu Sans\'; text-anchor: start" '
            'transform="scale(1,-1)">tick</text></g>'
        ),
        "matplotlib_hatch": figure(
            '<defs><pattern id="h" patternUnits="userSpaceOnUse" x="0" y="0" width="72" height="72"><rect x="0" y="0" '
            'width="73" height="73" fill="#ffbb78"/><path d="M -36 36 L 36 -36 M -18 54 L 54 -18 M 0 72 L 72 0 M 18 90 L '
            '90 18 M 36 108 L 108 36" style="fill: #000000; stroke: #000000; stroke-width: 1.0; stroke-linecap: butt"/>'
            '</pattern></defs><path d="M 30 80 L 70 80 L 70 20 L 30 20 z" style="fill: url(#h); opacity: 0.8"/><path '
            'd="M 80 80 L 120 80 L 120 40 L 80 40 z" style="fill: #1f77b4; fill-opacity: 0.4; stroke: #000"/>'
        ),
    }


def _others() -> dict[str, str]:
    return {
        "text_right_to_left": _svg(
            '<g font-family="DejaVu Sans" font-size="20"><text x="190" y="35" direction="rtl">שלום עולם</text><text '
            'x="190" y="70" style="direction:rtl;unicode-bidi:embed">مرحبا بالعالم!</text><text x="10" y="105" '
            'text-anchor="start">abc שלום def</text></g>'
        ),
        "text_length": _svg(
            '<g font-family="DejaVu Sans" font-size="18"><text x="10" y="30" textLength="180">spacing</text><text x="10" '
            'y="65" textLength="180" lengthAdjust="spacingAndGlyphs">glyphs</text><text x="10" y="100" '
            'letter-spacing="4" word-spacing="10">wide text</text></g>'
        ),
        "text_on_path": _svg(
            '<path id="t" d="M10 90C60 10 140 10 190 90" fill="none" stroke="#ccc"/><text font-family="DejaVu Sans" '
            'font-size="16"><textPath href="#t" startOffset="50%" text-anchor="middle">text on a path</textPath></text>'
        ),
        "css_units": f'<svg {_NAMES} width="200" viewBox="0 0 400 240" font-size="20"><rect x="1em" y="1rem" width="10rem" '
        'height="calc(100% - 2 * 1rem)" fill="rgb(0 0 255)"/><rect x="calc(200px + 5%)" y="16" width="25%" height="5em" '
        'fill="rgb(255 0 0 / 50%)" stroke="#000" style="stroke-width:0.25rem"/><circle style="cx:320px;cy:180px;r:2.5rem" '
        'fill="hwb(120 10% 30%)" opacity="75%"/></svg>',
        "css_transforms": _svg(
            "<style>.a{transform:translate(100px,60px) rotate(45deg) scale(1.2)}.b{transform-origin:40px 40px;"
            'transform:rotate(0.125turn)}</style><rect class="a" x="-20" y="-20" width="40" height="40" fill="#06c"/>'
            '<rect class="b" x="20" y="20" width="40" height="40" fill="#c60"/>'
        ),
        "markers_in_text": _svg(
            '<defs><marker id="a" markerWidth="6" markerHeight="6" refX="5" refY="3" orient="auto-start-reverse">'
            '<path d="M0 0L6 3L0 6z" fill="context-stroke"/></marker><marker id="d" markerWidth="8" markerHeight="8" '
            'refX="4" refY="4"><circle cx="4" cy="4" r="3"/></marker></defs><g marker-mid="url(#d)"><polyline '
            'points="20,100 60,40 120,80 180,20" fill="none" stroke="#a0a" stroke-width="2" marker-start="url(#a)" '
            'marker-end="url(#a)"/><text x="20" y="30" font-family="DejaVu Sans" marker-end="url(#a)">label</text></g>'
        ),
        "filter_primitives": _svg(
            '<filter id="l"><feGaussianBlur in="SourceAlpha" stdDeviation="3" result="b"/><feSpecularLighting in="b" '
            'surfaceScale="5" specularConstant=".75" specularExponent="20" lighting-color="#bbb" result="s">'
            '<fePointLight x="-50" y="-100" z="200"/></feSpecularLighting><feComposite in="s" in2="SourceAlpha" '
            'operator="in" result="s"/><feComposite in="SourceGraphic" in2="s" operator="arithmetic" k2="1" k3="1"/>'
            '</filter><filter id="m"><feMorphology operator="dilate" radius="3"/><feComponentTransfer><feFuncR '
            'type="table" tableValues="1 0"/></feComponentTransfer></filter><g filter="url(#l)"><circle cx="55" cy="60" '
            'r="40" fill="#c22"/></g><path d="M120 30h60v60h-60z" fill="none" stroke="#28c" stroke-width="4" '
            'filter="url(#m)"/>'
        ),
        "foreign_object": _svg(
            '<rect width="200" height="120" fill="#eef"/><foreignObject x="20" y="20" width="160" height="80"><p '
            f"{_HTML} style=\"margin:0;font:16px/1.5 'DejaVu Sans';color:#b00\">first line<br/>second</p></foreignObject>"
        ),
        "only_a_height": f'<svg {_NAMES} height="90" viewBox="0 0 300 150"><rect width="300" height="150" fill="#246"/>'
        '<circle cx="150" cy="75" r="60" fill="#fd0"/></svg>',
        "aspect_ratio": f'<svg {_NAMES} width="200" height="100" viewBox="0 0 50 50" preserveAspectRatio="xMaxYMin slice">'
        '<rect width="50" height="50" fill="#9cf"/><circle cx="25" cy="12" r="10" fill="#036"/></svg>',
    }


DRAWINGS: Mapping[str, str] = MappingProxyType(
    {
        name: drawing
        for group in (
            _figma,
            _inkscape,
            _illustrator,
            _badges,
            _d3,
            _excalidraw,
            _plotly,
            _drawio,
            _mermaid,
            _matplotlib,
        )
        for name, drawing in group().items()
    }
    | _others()
)
