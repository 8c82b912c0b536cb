#include <optional>
#include <tuple>

#include "bind/convert.h"
#include "bind/interpreter.h"
#include "bind/register.h"
#include "pool/batch_jobs.h"

namespace fastdata {
namespace {

// The calling thread's worker, which it keeps for as long as the limits stay the same. It has no
// budget: the caller has taken the memory from Python's.
Worker &thread_worker(const JpegLimits &limits) {
    thread_local std::optional<Worker> worker;
    if (!worker || !(worker->limits == limits)) worker.emplace(limits, JpegWay::kFastest, nullptr);
    return *worker;
}

CropItem item_of(const CropTables &plan, size_t row, const Canvas &out) {
    require(row < plan.rows(), "the row must be one of the crop plan's");
    return plan.item(row, out.data(), out.shape(1), out.shape(0));
}

void decode_one(const ByteView &data, const CropTables &plan, size_t row, const Canvas &out,
                const JpegLimits &limits) {
    const CropItem item = item_of(plan, row, out);
    WithoutLock without_lock;
    Worker &worker = thread_worker(limits);
    const RowEnd end(worker);
    decode_crop(worker, {data.data(), data.size()}, item);
}

void resize_one(const Image &image, const CropTables &plan, size_t row, const Canvas &out) {
    const CropItem item = item_of(plan, row, out);
    const ImageSize size{static_cast<int64_t>(image.shape(1)),
                         static_cast<int64_t>(image.shape(0))};
    WithoutLock without_lock;
    resize_crop(image.data(), size, item);
}

std::tuple<nb::object, int, int> cut_jpeg(const ByteView &data, int x0, int y0, int x1, int y1,
                                          const JpegLimits &limits) {
    const SmallJpeg *small;
    {
        WithoutLock without_lock;
        JpegDecoder &decoder = thread_worker(limits).decoder;
        small = decoder.cut(data.data(), data.size(), {x0, y0, x1, y1});
    }
    if (small == nullptr) return {nb::none(), 0, 0};
    return {nb::bytes(small->bytes.data(), small->bytes.size()), small->covers.x0,
            small->covers.y0};
}

}  // namespace

void register_crop(nb::module_ &m) {
    m.def("decode_crop", &decode_one, "data"_a.noconvert(), "plan"_a, "row"_a,
          "out"_a.noconvert(), "limits"_a,
          "Decode crop `row` of a plan into `out` in this thread; raise DecodeError.");
    m.def("resize_crop", &resize_one, "image"_a.noconvert(), "plan"_a, "row"_a,
          "out"_a.noconvert(),
          "Cut crop `row` of a plan from a decoded image into `out` in this thread.");
    m.def("cut_jpeg", &cut_jpeg, "data"_a.noconvert(), "x0"_a, "y0"_a, "x1"_a, "y1"_a, "limits"_a,
          nb::sig("def cut_jpeg(data: bytes | memoryview, x0: int, y0: int, x1: int, y1: int, "
                  "limits: fastdata.images.limits.JpegLimits) -> tuple[bytes | None, int, int]"),
          "Return a JPEG of the restart runs that a region needs, and the column and row of its "
          "first pixel in the image; None if there are no runs to leave out. Raise DecodeError.");
}

}  // namespace fastdata
