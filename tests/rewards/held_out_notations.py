r"""Notations that were written down before the verifier was made to read them; a check against fitting it to its tests.

Change the verifier for these only after moving them to `model_notations`.
"""

from __future__ import annotations

from model_notations import lines

STYLES: dict[str, tuple[str, ...]] = {
    "integer": lines(r"""
\mathbf{<n>}.
\underline{<n>}
{\color{red}<n>}
\textcolor{blue}{<n>}
\text{Final answer: <n>}
f(3) = <n>
a+b = <n>
m + n = <n>
|S| = <n>
S_{10} = <n>
\bf{<n>}
\Large <n>
\; <n> \;
答案：<n>
<n>个
\text{<n> students}
\text{There are } <n> \text{ ways}
\text{Area} = <n>
AB = <n>
\overline{AB} = <n>
[ABC] = <n>
\angle A + \angle B = <n>
\text{lcm} = <n>
"""),
    "dollars": lines(r"""
<n>\ \text{USD}
\$ <c>
\text{\$<c>.00}
\textdollar <n>
<n>\text{ dollars per hour}
\$\,<c>
\mathdollar<n>
\text{ \$}<n>
"""),
    "foreign_money": ("<n>元", r"<n>\text{ yuan}", "£<c>", r"\text{Rs.} <n>", "Rs <n>", r"HK\$<c>", r"\text{RM}<n>"),
    "fraction": lines(r"""
\cfrac{<a>}{<b>}
^{<a>}/_{<b>}
Fraction(<a>, <b>)
\frac{<a>.0}{<b>}
\frac{1}{<b>}\cdot <a>
<a>\div<b>
\frac{<a>}{<b>}\approx <dec>
P(A)=\frac{<a>}{<b>}
\left.\frac{<a>}{<b>}\right.
(<a>)/(<b>)
<a>\cdot\frac{1}{<b>}
\frac{\text{<a>}}{\text{<b>}}
\frac{ <a> }{ <b> }
\text{Probability} = \frac{<a>}{<b>}
"""),
    "digit_fraction": (r"\tfrac<a><b>", r"\frac <a> <b>", r"\frac<a>{<b>}", r"\displaystyle\frac<a><b>"),
    "negative_fraction": lines(r"""
-\left(\frac{<a>}{<b>}\right)
\frac{<a>}{-<b>}
{-}\frac{<a>}{<b>}
–<a>/<b>
-\frac{<a2>}{<b2>}
- \frac{<a>}{<b>}
\dfrac{-<a>}{<b>}
"""),
    "mixed": (
        r"<w>\,\frac{<a>}{<b>}",
        r"<w>\tfrac{<a>}{<b>}\text{ hours}",
        r"<w>+\frac{<a>}{<b>}",
        r"<w> \frac{<a>}{<b>}",
    ),
    "percent": lines(r"""
<p>\,\%
<p>\text{\%}
\text{<p>\%}
<p>.0\%
<p> \text{ per cent}
<p>％
<p>\mathrm{\%}
"""),
    "area": lines(r"""
<n>~\mathrm{<u>^<k>}
<n>\;\mathrm{<u>}^{<k>}
<n><u><raised>
<n>\text{<u><raised>}
<n>\text{ <u>$^<k>$}
<n>\ <u>^<k>
<n>\textrm{ <u>}^<k>
\text{<n> <u>}^<k>
<n>\text{ <short> <u>}
<n>\text{ <full> <u>}
V = <n>\text{ <u>}^<k>
"""),
    "speed": lines(r"""
<n>\ \mathrm{m \cdot s^{-1}}
<n>\text{ m}/\text{s}
<n>\ \mathrm{m}/\mathrm{s}
<n>\ \text{m s}^{-1}
<n>\text{ metres per second}
<n>米/秒
<n>\dfrac{\mathrm{m}}{\mathrm{s}}
v = <n>\ \mathrm{m/s}
"""),
    "hours": (r"<n>\text{ hrs}", "<n>小时", r"<n>~\mathrm{hours}", r"<n>\,\text{hr}", r"t=<n>\text{ hours}"),
    "angle": lines(r"""
<n>\degree
\angle ABC = <n>^\circ
<n>{}^\circ
<n>\,^\circ
<n>^{\mathrm{o}}
<n>\text{°}
<n>\textdegree
<n> deg
\theta=<n>^\circ
<n>度
"""),
    "surd": lines(r"""
<a>{\sqrt{<b>}}
<a>\,\sqrt{<b>}
<a>\sqrt[2]{<b>}
<a>\times\sqrt{<b>}
<a>sqrt(<b>)
sqrt(<abb>)
<a>\cdot <b>^{1/2}
<a>\cdot<b>^{\frac{1}{2}}
<a>\sqrt{<b>}\approx <dec>
<a>*<b>**(1/2)
<a>√(<b>)
<a>\sqrt{<b>}\text{ cm}
\left(<a>\sqrt{<b>}\right)
<a> \sqrt{ <b> }
"""),
    "roots": lines(r"""
x_{1,2}=\frac{<p>\pm\sqrt{<q>}}{<r>}
x_1=<one>, x_2=<two>
(<p> ± sqrt(<q>))/<r>
\frac{<p>}{<r>}\pm\frac{\sqrt{<q>}}{<r>}
x = <one> \text{ or } x = <two>
x=<one>,\; x=<two>
x_1=\frac{<p>+\sqrt{<q>}}{<r>}，x_2=\frac{<p>-\sqrt{<q>}}{<r>}
\frac{1}{<r>}(<p>\pm\sqrt{<q>})
"""),
    "pi_fraction": lines(r"""
<a>\pi/<b>
\frac{\pi\cdot<a>}{<b>}
\pi\cdot\frac{<a>}{<b>}
pi*<a>/<b>
\frac{<a>\mathrm{\pi}}{<b>}
\frac{<a>\pi}{<b>}\text{ radians}
{<a>\pi\over <b>}
<a>*math.pi/<b>
<a>*np.pi/<b>
\frac{<a>}{<b>}\cdot\pi
"""),
    "pi_multiple": (
        r"<n> \cdot \pi",
        "<n>π",
        r"<n>\pi \text{ square units}",
        r"A = <n>\pi",
        r"\pi\cdot <r>^2",
        r"<n>\,\pi",
    ),
    "logarithm": lines(r"""
<a>\log_e <b>
<a>\ln\left(<b>\right)
\ln <b>^{<a>}
\ln\left(<b>^<a>\right)
<a>ln(<b>)
<a>\ln{<b>}
<a>\ln|<b>|
\ln <pow>
<a>\operatorname{ln}(<b>)
"""),
    "exponential": lines(r"""
<a>\operatorname{e}^{<b>}
<a>{\rm e}^{<b>}
<a>*E**<b>
<a>e^(<b>)
<a>\exp\left(<b>\right)
<a>\,e^{\,<b>}
<a>exp(<b>)
<a>*e**<b>
e^{<b>}\cdot <a>
"""),
    "complex": (r"<a>+<b>\,i", r"<a>+<b>\text{i}", "z=<a>+<b>i", r"<a>+<b>\cdot i", "(<a>+<b>j)", r"<a>+<b>{\rm i}"),
    "large_power": lines(r"""
<b>\cdot<b>^{<k1>}-<d>
<b>^(<k>)-<d>
\left(<b>^{<k>}-<d>\right)
-<d> + <b>**<k>
<b>^{<k>}+(-<d>)
<value>
"""),
    "binomial": lines(r"""
{}_{<n>}C_{<k>}
C_{<n>}^{<k>}
\mathrm{C}_{<n>}^{<k>}
binomial(<n>, <k>)
{<n> \choose <k>}
\binom{<n>}{<m>}
\tbinom{<n>}{<k>}
C(<n>,<k>)
"""),
    "factorial": (r"<d> + <n>!", r"\left(<n>!\right)+<d>", "math.factorial(<n>)+<d>", "(<n>)!+<d>"),
    "polynomial": lines(r"""
p(x) = <a>x^2+<b>x+<c>
<a>x²+<b>x+<c>
<a>\cdot x^2+<b>\cdot x+<c>
<a>{x}^{2}+<b>x+<c>
<c> + x(<b> + <a>x)
P(x)=<a>x^{2}+<b>x+<c>
<a>·x^2 + <b>·x + <c>
"""),
    "factored": lines(r"""
\left(x-<a>\right)\left(x+<b>\right)
(x-<a>)\cdot(x+<b>)
(x+<b>)\,(x-<a>)
(x-<a>) \times (x+<b>)
x^{2}+<s> x-<p>
f(x)=(x-<a>)(x+<b>)
"""),
    "line": ("<m>x+<c>=y", "y-<c>=<m>x", "-<m>x+y-<c>=0", r"y=<m>\cdot x+<c>", "2y=<m2>x+<c2>", r"y = <m>\,x + <c>"),
    "point": lines(r"""
x=<a>, y=<b>
x=<a>\text{ and }y=<b>
x = <a>,\; y = <b>
A(<a>,<b>)
P=(<a>,<b>)
（<a>，<b>）
(<a>;<b>)
( <a> , <b> )
\text{(<a>, <b>)}
"""),
    "points": lines(r"""
\{(<c>,<d>),(<a>,<b>)\}
(x,y)=(<a>,<b>),(<c>,<d>)
(<a>,<b>);(<c>,<d>)
(<a>,<b>)\text{ or }(<c>,<d>)
(<a>,<b>)和(<c>,<d>)
(<a>,<b>) and (<c>,<d>)
\left(<a>,<b>\right), \left(<c>,<d>\right)
"""),
    "two_numbers": lines(r"""
x_1=<a>,\ x_2=<b>
x \in \{<a>,<b>\}
<a>和<b>
x=<a>或x=<b>
<a>，<b>
<a> \quad\text{or}\quad <b>
S=\{<a>,<b>\}
x=<a>; x=<b>
x = <a>, <b>
x=<a>, x=<b>
<a>}$ and $\boxed{<b>
<a> \& <b>
\text{<a> and <b>}
[<a>, <b>]
"""),
    "closed_interval": lines(r"""
\{x\mid <a>\le x\le <b>\}
\{x\in\mathbb{R}\mid <a>\leqslant x\leqslant <b>\}
<b> \ge x \ge <a>
[<a>，<b>]
\left\{x | <a> ≤ x ≤ <b>\right\}
x \in \left[<a>, <b>\right]
<a>\leq x\text{ and }x\leq <b>
(<a> <= x) & (x <= <b>)
And(<a> <= x, x <= <b>)
<a> <= x <= <b>
"""),
    "half_open_interval": (r"\{x\mid <a>\le x<<b>\}", r"[<a>,<b>[", r"<a> \leqslant x < <b>", r"<b> > x \ge <a>"),
    "ray": lines(r"""
x\in(<a>,+\infty)
\{x|x><a>\}
x \gt <a>
]<a>,+\infty[
x＞<a>
\{x:x><a>\}
(<a>, inf)
(<a>, +∞)
\left(<a> ,\, \infty\right)
"""),
    "outer_union": lines(r"""
x\in(-\infty,<a>)\cup(<b>,\infty)
x<<a>\lor x><b>
\{x\mid x<<a>\text{ or }x><b>\}
(<b>,\infty)\cup(-\infty,<a>)
x＜<a>或x＞<b>
(-\infty;<a>)\cup(<b>;+\infty)
x<<a>, x><b>
x\in(-\infty,<a>)\text{ or }x\in(<b>,\infty)
(x < <a>) | (x > <b>)
x < <a> \quad \text{or} \quad x > <b>
"""),
    "matrix": lines(r"""
\left(\begin{array}{cc}<a>&<b>\\<c>&<d>\end{array}\right)
\left[\begin{array}{rr}<a> & <b>\\ <c> & <d>\end{array}\right]
M=\begin{pmatrix}<a>&<b>\\<c>&<d>\end{pmatrix}
\begin{bmatrix}<a>&<b>\\<c>&<d>\\\end{bmatrix}
\pmatrix{<a>&<b>\cr <c>&<d>}
[[<a>, <b>], [<c>, <d>]]
array([[<a>, <b>], [<c>, <d>]])
"""),
    "congruence": lines(r"""
x \equiv <a> \mod <m>
x\equiv <a>\ (\bmod\ <m>)
x ≡ <a> (mod <m>)
<a> \pmod{<m>}
x\equiv <a> \quad(\operatorname{mod} <m>)
"""),
    "letter_truth": lines(r"""
\textbf{(<l>) } <n>
\text{<l>: }<n>
\mathbf{(<l>)}\ <n>
\text{Choice (<l>)}
\textbf{Answer: <l>}
选<l>
\mathrm{<l>}.
\textbf{<l>}\ (<n>)
\text{The answer is <l>}
\text{<l>}
"""),
    "value_truth": (
        r"\textbf{(<l>)}\;<n>",
        r"\text{<l>: }<n>",
        r"\mathbf{(<l>)}\ <n>",
        r"\text{(<l>)}\ \ <n>",
        "(<l>) <n>",
    ),
    "word": (
        r"\text{<w>.}",
        r"\textit{<w>}",
        "**<w>**",
        r"\text{ <w> }",
        r"\texttt{<w>}",
        r'\text{"<w>"}',
        r"\text{The answer is <w>}",
    ),
    "clock": (r"<h>\!:\!<m>", r"<h>:<m>\ \text{p.m.}", r"\text{<h>:<m> PM}", "<h>:<m> p.m."),
    "ratio": (r"<a>\!:\!<b>", r"<a> \colon <b>", r"<a>\text{ : }<b>", "<a>∶<b>", "<a>：<b>", r"<a>\text{ to }<b>"),
    "base_number": (r"(<d>)_<b>", r"<d>_{(<b>)}", r"<d>\text{ (base <b>)}", r"<d>_\text{<name>}", r"<d>_{ <b> }"),
    "scientific": lines(r"""
<m>*10^<k>
<m>*10**<k>
<m>E+<k>
<m>×10<raised>
<mm>\times10^{<k1>}
<m> x 10^<k>
<m> \ast 10^{<k>}
<m>\times 10^{<k>}\text{ m}
"""),
    "e_notation_truth": lines(r"""
<m>/<low>
\frac{<m>}{<low>}
<m>\left(\frac{1}{10}\right)^{<p>}
<m>*10**-<p>
<m>×10^{-<p>}
\frac{<m>}{10^2\cdot10^{<p1>}}
"""),
    "million": (r"\text{<n> million}", "<n>e6", r"<n>\cdot10^6", r"<n>\text{ million people}"),
    "not_million": (r"\text{<n>}", "<n>."),
    "letters_fraction": (
        r"\frac{<a>a}{c}+\frac{<b>b}{c}",
        r"\frac{1}{c}(<a>a+<b>b)",
        r"\left(<a>a+<b>b\right)/c",
        r"c^{-1}(<b>b+<a>a)",
    ),
    "sine": (
        r"<a>\sin^{2}(x)",
        r"<a>\left(\sin x\right)^{2}",
        "<a>sin^2(x)",
        r"\frac{<a>(1-\cos 2x)}{2}",
        r"<a>(1-\cos^2 x)",
    ),
    "sequence": (r"a_{n}=<a>n-<b>", r"a_n = <a>n - <b>\ (n\in\mathbb{N}^*)", "f(n)=<a>n-<b>", r"-<b>+<a>n"),
    "periodic": (
        r"x = 2\pi k + \frac{\pi}{<a>}, k \in Z",
        r"x=\frac{\pi}{<a>}+2k\pi (k∈Z)",
        r"2k\pi+\frac{\pi}{<a>} \quad (k\in\mathbb{Z})",
    ),
    "cases": (
        r"f(x) = \begin{cases} <a>x, & \text{if } x<0 \\ <b>x, & \text{if } x\ge 0 \end{cases}",
        r"\left\{\begin{array}{ll}<a>x & x<0\\ <b>x & x\ge 0\end{array}\right.",
    ),
    "statements": ("<one> <two>", r"<one>\text{ and }<two>", "<one>和<two>"),
    "rounded": (r"x\approx <x>", "≈<x>", r"x = <x>", r"\text{approximately } <x>", "約<x>"),
}
