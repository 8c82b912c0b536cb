// The Python module fastdata._core: convert, release the GIL, call one function.

#include <exception>
#include <string>
#include <tuple>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "jpeg_header.h"
#include "jpeg_library.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Any buffer of bytes: bytes, memoryview, mmap, a one-dimensional uint8 array. Not copied.
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using JpegHeaderTuple = std::tuple<int, int, int, std::string, bool, bool, int, int>;

JpegHeaderTuple probe_jpeg(const Bytes &data, int64_t max_pixels, int max_scans,
                           int max_segments) {
    fastdata::JpegHeader h;
    {
        nb::gil_scoped_release release;
        h = fastdata::read_jpeg_header(data.data(), data.size(),
                                       {max_pixels, max_scans, max_segments});
    }
    return {h.width, h.height, h.components, h.sampling, h.progressive, h.arithmetic,
            h.restart_interval, h.scans};
}

void translate_decode_error(const std::exception_ptr &error, void *python_type) {
    try {
        std::rethrow_exception(error);
    } catch (const fastdata::DecodeError &decode_error) {
        PyErr_SetString(static_cast<PyObject *>(python_type), decode_error.what());
    }
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "Native core of fastdata; fastdata.probe.core() tells whether it is there.";

    // The module keeps the class alive for as long as the translator may need it.
    nb::object decode_error = nb::module_::import_("fastdata.errors").attr("DecodeError");
    m.attr("DecodeError") = decode_error;
    nb::register_exception_translator(translate_decode_error, decode_error.ptr());

    m.def("libjpeg_turbo_version", &fastdata::libjpeg_turbo_version,
          "Return the version of the linked libjpeg-turbo, for example '3.1.0'.");
    m.def("probe_jpeg", &probe_jpeg, "data"_a.noconvert(), "max_pixels"_a, "max_scans"_a,
          "max_segments"_a,
          nb::sig("def probe_jpeg(data: bytes | memoryview, max_pixels: int, max_scans: int, "
                  "max_segments: int) -> tuple[int, int, int, str, bool, bool, int, int]"),
          "Return the fields of fastdata.jpeg_header.JpegHeader, in its order; raise DecodeError.");
}
