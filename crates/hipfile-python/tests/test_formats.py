"""Files of numpy and of safetensors."""

import json
import os
import struct

import ml_dtypes
import numpy
import pytest

import hipfile
from hipfile import DeviceArray, SafetensorsError, load_npy, load_safetensors, save_npy


class TestNpy:
    @pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "float64", "complex128", "int64"])
    @pytest.mark.parametrize("shape", [(), (7,), (3, 0, 2), (5, 300, 41)])
    def test_behaviour_139_round_trip_with_numpy(self, tmp_path, dtype, shape):
        path = tmp_path / "a.npy"
        array = numpy.random.default_rng(1).integers(0, 2, shape).astype(dtype)
        nbytes = save_npy(path, array)
        assert path.stat().st_size == nbytes
        assert os.listdir(tmp_path) == ["a.npy"]
        theirs = numpy.load(path)
        assert (theirs.dtype, theirs.shape) == (array.dtype, array.shape)
        assert numpy.array_equal(theirs, array)
        numpy.save(path, array)
        for ours in (load_npy(path), load_npy(path, "gpu", container="hipfile").numpy()):
            assert (ours.dtype, ours.shape) == (array.dtype, array.shape)
            assert numpy.array_equal(ours, array)

    def test_from_the_gpu(self, tmp_path):
        array = numpy.arange(123456, dtype=numpy.float32).reshape(3, -1)
        save_npy(tmp_path / "a.npy", DeviceArray.from_host(array), sync=True)
        assert numpy.array_equal(numpy.load(tmp_path / "a.npy"), array)

    def test_fortran_order(self, tmp_path):
        array = numpy.asfortranarray(numpy.arange(60).reshape(3, 4, 5))
        numpy.save(tmp_path / "a.npy", array)
        assert numpy.array_equal(load_npy(tmp_path / "a.npy"), array)
        with pytest.raises(ValueError, match="Fortran"):
            load_npy(tmp_path / "a.npy", "gpu", container="hipfile")
        with pytest.raises(ValueError, match="not C-contiguous"):
            save_npy(tmp_path / "b.npy", array)
        assert os.listdir(tmp_path) == ["a.npy"]

    def test_what_is_refused(self, tmp_path):
        path = tmp_path / "a.npy"
        numpy.save(path, numpy.array([{}, []], dtype=object), allow_pickle=True)
        with pytest.raises(ValueError, match="Python objects"):
            load_npy(path)
        numpy.save(path, numpy.zeros(4, ">f8"))
        with pytest.raises(TypeError, match="f8.*numpy.load"):
            load_npy(path)
        for contents in (b"", b"\x93NUMPY", b"\x93NUMPY\x09\x00" + bytes(100), b"no such file at all"):
            path.write_bytes(contents)
            with pytest.raises(ValueError, match="no .npy file"):
                load_npy(path)
        numpy.save(path, numpy.zeros(1000))
        os.truncate(path, 4000)
        with pytest.raises(EOFError):
            load_npy(path)
        with pytest.raises(TypeError, match="bfloat16"):
            save_npy(path, numpy.zeros(4, ml_dtypes.bfloat16))


def npy(header, data=b"", version=1, length=None):
    text = header if isinstance(header, bytes) else header.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    length = len(text) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + length.to_bytes(2 if version == 1 else 4, "little") + text + data


def described(descr="'<f4'", order="False", shape="(2,)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


HOSTILE_NPY = {
    "too large a length": npy(described(shape="(0, 9223372036854775808)")),
    "too large a product": npy(described(shape="(4294967296, 4294967296)")),
    "too large a product of nothing": npy(described(shape="(0, 4294967296, 4294967296)")),
    "huge number": npy(described(shape="(" + "9" * 5000 + ",)")),
    "negative length": npy(described(shape="(-1,)")),
    "length is true": npy(described(shape="(True,)"), bytes(4)),
    "length is a fraction": npy(described(shape="(2.0,)")),
    "shape is a number": npy(described(shape="2")),
    "shape is a list": npy(described(shape="[2]")),
    "many dimensions": npy(described(shape="(" + "1," * 2000 + ")")),
    "parentheses": npy("(" * 5000),
    "brackets": npy("[" * 9000 + "]" * 9000),
    "a call": npy("__import__('os').system('false')"),
    "a set": npy("{1, 2}"),
    "no key": npy("{}"),
    "keys are numbers": npy("{1: 2, 3: 4, 5: 6}"),
    "nothing": npy(""),
    "NUL": npy(b"\0" * 100),
    "no text": npy(b"\xff\xfe" * 100),
    "escape": npy("{'descr': '\\q', 'fortran_order': False, 'shape': (2,)}"),
    "unterminated": npy("{'descr': '<f4"),
    "indented": npy("  {\n\t'descr'"),
    "type is a number": npy(described("7")),
    "type is None": npy(described("None")),
    "type of objects": npy(described("'O'")),
    "fields of objects": npy(described("[('a', 'O')]")),
    "fields of nothing": npy(described("[()]")),
    "type of a comma": npy(described("','")),
    "type of huge elements": npy(described("'V99999999999'")),
    "order is a word": npy(described(order="'C'")),
    "header of 4 GiB": npy(described(), version=2, length=(1 << 32) - 1),
    "header beyond the file": npy(described(), length=60000),
}


@pytest.mark.parametrize("kind", HOSTILE_NPY)
def test_hostile_npy_headers_are_refused(kind, tmp_path):
    path = tmp_path / "hostile.npy"
    path.write_bytes(HOSTILE_NPY[kind])
    with pytest.raises(ValueError, match="hostile.npy.*is no .npy file that can be loaded") as raised:
        load_npy(path)
    assert type(raised.value) is ValueError and len(str(raised.value)) < 500


def test_damaged_headers_never_end_in_anything_else(tmp_path):
    """Bytes changed, cut and doubled at random: an array, or one of the errors that are documented."""
    random = numpy.random.default_rng(7)
    numpy.save(tmp_path / "good.npy", numpy.arange(6, dtype="i4").reshape(2, 3))
    build(tmp_path / "good.safetensors", {"t": ("F32", [2, 3], bytes(24)), "u": ("U8", [3], b"abc")}, {"k": "v"})
    for name, load in (("good.npy", load_npy), ("good.safetensors", load_safetensors)):
        good = (tmp_path / name).read_bytes()
        path = tmp_path / f"bad-{name}"
        for _ in range(500):
            bad = bytearray(good)
            for _ in range(random.integers(1, 4)):
                at, how = int(random.integers(0, min(len(bad), 140))), int(random.integers(0, 4))
                if how == 0:
                    bad[at] = int(random.integers(0, 256))
                elif how == 1:
                    bad[at] = b"0123456789(),[]{}'\":<>|fiOV-e"[int(random.integers(0, 29))]
                elif how == 2:
                    del bad[at : at + int(random.integers(1, 9))]
                else:
                    bad[at:at] = bad[at : at + int(random.integers(1, 9))]
            path.write_bytes(bad)
            try:
                load(path)
            except (ValueError, EOFError):
                pass
            except TypeError as error:
                assert name == "good.npy" and "element type" in str(error), error


def build(path, tensors, metadata=None, pad=0):
    """A file of the format, by its description alone: name -> (type, shape, bytes)."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (kind, shape, contents) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(contents)]}
        data += contents
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + pad)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def model(tmp_path, pattern):
    """Tensors of all widths, in an order that leaves wide ones at odd offsets."""
    tensors = {
        "a.weight": ("F32", [300, 1001], pattern(300 * 1001 * 4, 1)),
        "b.flag": ("BOOL", [3], b"\x01\x00\x01"),
        "c.half": ("BF16", [5, 7], pattern(70, 2)),
        "d.wide": ("I64", [2, 3], pattern(48, 3)),
        "e.empty": ("F16", [0, 4], b""),
        "f.scalar": ("F64", [], pattern(8, 4)),
        "g.eight": ("F8_E4M3", [9], pattern(9, 5)),
        "h.last": ("F32", [100_003], pattern(400_012, 6)),
    }
    path = tmp_path / "model.safetensors"
    build(path, tensors, {"format": "pt"})
    return path, tensors


TYPES = {"F32": "float32", "BOOL": "bool", "BF16": "bfloat16", "I64": "int64", "F16": "float16", "F64": "float64",
         "F8_E4M3": "float8_e4m3fn"}


class TestSafetensors:
    @pytest.mark.parametrize("device, container", [("cpu", None), ("cpu", "numpy"), ("gpu", "hipfile")])
    @pytest.mark.parametrize("pad", [0, 1])
    def test_every_tensor_comes_to_its_place(self, model, device, container, pad):
        path, tensors = model
        build(path, tensors, pad=pad)
        loaded = load_safetensors(path, device, container=container)
        assert list(loaded) == list(tensors)
        for name, (kind, shape, contents) in tensors.items():
            array = loaded[name]
            assert (str(array.dtype), list(array.shape)) == (TYPES[kind], shape), name
            assert array.tobytes() == contents, name

    def test_some_of_them(self, model):
        path, tensors = model
        loaded = load_safetensors(path, names=["h.last", "b.flag"])
        assert list(loaded) == ["b.flag", "h.last"]
        assert loaded["h.last"].tobytes() == tensors["h.last"][2]
        assert load_safetensors(path, names=[]) == {}
        with pytest.raises(KeyError, match="frob"):
            load_safetensors(path, names=["frob"])

    def test_one_pass_in_few_ranges(self, model, monkeypatch):
        """No byte is read twice, neighbours are read together, and pages of the file are pages of the memory."""
        path, tensors = model
        read = []
        inner = hipfile._safetensors._core.read_pieces
        monkeypatch.setattr(
            hipfile._safetensors._core, "read_pieces", lambda file, pieces: read.extend(pieces) or inner(file, pieces)
        )
        load_safetensors(path, "gpu", container="hipfile")
        assert sum(nbytes for _, nbytes, _ in read) == sum(len(contents) for _, _, contents in tensors.values())
        assert len(read) < len(tensors)
        ptr, _, offset = read[0]
        assert ptr % 4096 == offset % 4096

    def test_the_host_copy_is_none(self, tmp_path, python, pattern):
        """Loading to the GPU takes no more host memory than staging does."""
        path = tmp_path / "large.safetensors"
        contents = pattern(1 << 20) * 64
        build(path, {"t": ("U8", [len(contents)], contents)})
        status, out, err = python(
            f"""
            import tracemalloc, hipfile
            tracemalloc.start()
            hipfile.load_safetensors({str(path)!r}, "gpu", container="hipfile")
            print(tracemalloc.get_traced_memory()[1])
            """,
            HIPFILE_DEVICE="emulated",
        )
        assert status == 0, err
        assert int(out) < 4 << 20

    def test_a_bar_shows_progress(self, model, capsys):
        path, tensors = model
        loaded = load_safetensors(path, progress=True)
        assert loaded["h.last"].tobytes() == tensors["h.last"][2]
        assert "model.safetensors" in capsys.readouterr().err

    def test_header(self, model):
        path, tensors = model
        header = hipfile.safetensors_header(path)
        assert header.metadata == {"format": "pt"}
        assert [tensor.shape for tensor in header.tensors.values()] == [tuple(t[1]) for t in tensors.values()]

    def test_a_file_that_shrinks_is_told(self, model, monkeypatch):
        path, _ = model
        inner = hipfile._safetensors._layout

        def shrink(tensors):
            os.truncate(path, 5000)
            return inner(tensors)

        monkeypatch.setattr(hipfile._safetensors, "_layout", shrink)
        with pytest.raises(EOFError, match="ends at 5000"):
            load_safetensors(path)


def raw(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(**change):
    return {"t": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4], **change}}


HOSTILE = {
    "empty": (b"", "no header"),
    "short": (b"1234567", "no header"),
    "header beyond the file": (raw(b"{}", length=100), "does not fit"),
    "header of 2^63": (raw(b"{}", length=1 << 63), "does not fit"),
    "no JSON": (raw(b"{nonsense}"), "no JSON"),
    "no object": (raw(b"[1, 2]"), "begin with"),
    "space first": (raw(b" {}"), "begin with"),
    "no UTF-8": (raw(b'{"\xff": 1}'), "no JSON"),
    "deep": (raw(b'{"t":' + b"[" * 200000 + b"]" * 200000 + b"}"), "nested|no JSON|not exactly"),
    "huge number": (raw(b'{"t":{"dtype":"U8","shape":[' + b"9" * 100000 + b'],"data_offsets":[0,4]}}', b"1234"), "."),
    "NaN": (raw(b'{"t":{"dtype":"U8","shape":[NaN],"data_offsets":[0,4]}}', b"1234"), "NaN"),
    "twice the name": (raw(b'{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[4],'
                           b'"data_offsets":[0,4]}}', b"1234"), "twice"),
    "no entry": (raw({"t": 5}, b"1234"), "not exactly"),
    "missing key": (raw({"t": {"dtype": "U8", "shape": [4]}}, b"1234"), "not exactly"),
    "more keys": (raw(one(more=1), b"1234"), "not exactly"),
    "unknown type": (raw(one(dtype="U7"), b"1234"), "U7"),
    "type is a number": (raw(one(dtype=7), b"1234"), "7"),
    "shape is no list": (raw(one(shape=4), b"1234"), "shape"),
    "negative length": (raw(one(shape=[-4]), b"1234"), "shape"),
    "length is true": (raw(one(shape=[True]), b"1"), "shape"),
    "length is no whole number": (raw(one(shape=[4.0]), b"1234"), "shape"),
    "product overflows": (raw(one(shape=[1 << 63, 4]), b"1234"), "more than"),
    "nothing, of too many": (raw(one(shape=[0, 1 << 63], data_offsets=[0, 0])), "more than"),
    "offsets turned": (raw(one(data_offsets=[4, 0]), b"1234"), "lie within"),
    "offsets outside": (raw(one(shape=[8], data_offsets=[0, 8]), b"1234"), "lie within"),
    "one offset": (raw(one(data_offsets=[4]), b"1234"), "offsets"),
    "size and shape differ": (raw(one(shape=[3]), b"1234"), "takes 3 bytes"),
    "overlap": (raw({"a": one()["t"], "b": one(data_offsets=[2, 6])["t"]}, b"123456"), "overlaps"),
    "hole": (raw({"a": one()["t"], "b": one(data_offsets=[5, 9])["t"]}, b"123456789"), "unused"),
    "rest": (raw(one(), b"12345"), "belong to no tensor"),
    "metadata of numbers": (raw({"__metadata__": {"a": 1}}), "__metadata__"),
    "metadata is no object": (raw({"__metadata__": "a"}), "__metadata__"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_headers_are_refused(kind, tmp_path):
    contents, word = HOSTILE[kind]
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(contents)
    for load in (load_safetensors, hipfile.safetensors_header):
        with pytest.raises(SafetensorsError, match=word) as raised:
            load(path)
        assert "hostile.safetensors" in str(raised.value)
        assert len(str(raised.value)) < 400
