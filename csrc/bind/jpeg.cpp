#include <string>
#include <tuple>

#include <nanobind/stl/string.h>

#include "bind/convert.h"
#include "bind/interpreter.h"
#include "bind/register.h"
#include "jpeg/header.h"
#include "jpeg/library.h"
#include "jpeg/transcode.h"

namespace fastdata {
namespace {

using HeaderFields = std::tuple<int, int, int, std::string, bool, bool, int, int>;

HeaderFields probe_jpeg(const ByteView &data, const JpegLimits &limits) {
    JpegHeader h;
    {
        WithoutLock without_lock;
        h = read_jpeg_header(data.data(), data.size(), limits);
    }
    return {h.width, h.height, h.components, h.sampling, h.progressive, h.arithmetic,
            h.restart_interval, h.scans};
}

std::tuple<nb::object, std::string, bool, bool> transcode_jpeg(const ByteView &data, int run_pixels,
                                                               const JpegLimits &limits,
                                                               bool damaged) {
    TranscodeResult result;
    {
        WithoutLock without_lock;
        result = transcode(data.data(), data.size(), run_pixels, limits,
                           damaged ? Tolerated::kDamage : Tolerated::kHarmless);
    }
    if (result.outcome != Transcoded::kDone) {
        return {nb::none(), describe(result.outcome), result.warned, result.left_over};
    }
    return {nb::bytes(result.bytes.data(), result.bytes.size()), "", result.warned,
            result.left_over};
}

}  // namespace

void register_jpeg(nb::module_ &m) {
    m.def("libjpeg_turbo_version", &libjpeg_turbo_version,
          "Return the version of the linked libjpeg-turbo, for example '3.1.0'.");
    m.def("probe_jpeg", &probe_jpeg, "data"_a.noconvert(), "limits"_a,
          nb::sig("def probe_jpeg(data: bytes | memoryview, "
                  "limits: fastdata.images.limits.JpegLimits) -> "
                  "tuple[int, int, int, str, bool, bool, int, int]"),
          "Return the fields of JpegHeader in jpeg_header.py, in its order; raise DecodeError.");
    m.def("transcode_jpeg", &transcode_jpeg, "data"_a.noconvert(), "run_pixels"_a, "limits"_a,
          "damaged"_a = false,
          nb::sig("def transcode_jpeg(data: bytes | memoryview, run_pixels: int, "
                  "limits: fastdata.images.limits.JpegLimits, damaged: bool = False) "
                  "-> tuple[bytes | None, str, bool, bool]"),
          "Re-encode a JPEG with restart runs. Return it, or None and why it is kept as it is; "
          "whether libjpeg warns about it without harm; and whether bytes are left over in its "
          "coded data. With `damaged`, encode what libjpeg makes of damage. Raise DecodeError.");
}

}  // namespace fastdata
