#include "pool/batch_jobs.h"

#include <algorithm>
#include <stdexcept>

#include "base/crc32c.h"
#include "jpeg/header.h"
#include "jpeg/layout.h"

namespace fastdata {
namespace {

// A decoder's boxes are of ints. A coordinate that does not fit becomes one that no image has: it
// is refused like any other, instead of wrapping around into the image.
int narrowed(int64_t coordinate) {
    return static_cast<int>(std::clamp<int64_t>(coordinate, -(1 << 30), 1 << 30));
}

// What decoding takes at most beside the pixels of the region: libjpeg-turbo keeps all coefficients
// of an image that comes in several scans.
size_t coefficient_bytes(const CropItem &item) {
    const int64_t most = 65535;  // pixels along a side of a JPEG
    return static_cast<size_t>(8 * std::clamp<int64_t>(item.image.width, 0, most) *
                               std::clamp<int64_t>(item.image.height, 0, most));
}

size_t pixel_bytes(const Box &window) {
    return size_t{4} * static_cast<size_t>(window.width()) * static_cast<size_t>(window.height());
}

// Waits for the memory that decoding takes, if that is much.
void lease_memory(Worker &worker, const Bytes &bytes, const CropItem &item,
                  const Box &window) {
    const size_t pixels = pixel_bytes(window), coefficients = coefficient_bytes(item);
    if (worker.lease.large() || pixels + coefficients < kSmallDecode) return;
    JpegLayout layout;
    read_jpeg_layout(bytes.data, bytes.size, worker.limits, layout);
    worker.lease.take(pixels + (layout.sequential() && layout.one_scan ? 0 : coefficients));
}

}  // namespace

void decode_crop(Worker &worker, const Bytes &bytes, const CropItem &item) {
    const Box window = source_window(item.plan);
    RgbView view;
    if (window.width() > 0 && window.height() > 0) {
        lease_memory(worker, bytes, item, window);
        const int x = narrowed(item.x), y = narrowed(item.y);
        const Box region{x + window.x0, y + window.y0, x + window.x1, y + window.y1};
        view = worker.decoder.decode_region(bytes.data, bytes.size, region, worker.way,
                                            item.image);
    }
    const auto stride = static_cast<ptrdiff_t>(item.plan.out_width) * 3;
    resize(item.plan, view.pixels, view.stride, item.out, stride, worker.scratch);
}

void resize_crop(const uint8_t *pixels, const ImageSize &size, const CropItem &item) {
    const ResizePlan &plan = item.plan;
    if (item.x < 0 || item.y < 0 || plan.source_width > size.width ||
        plan.source_height > size.height || item.x > size.width - plan.source_width ||
        item.y > size.height - plan.source_height) {
        throw std::invalid_argument("the region must lie within the image");
    }
    const Box window = source_window(plan);
    const auto stride = static_cast<ptrdiff_t>(size.width) * 3;
    const uint8_t *first = pixels + (item.y + window.y0) * stride + (item.x + window.x0) * 3;
    const auto out_stride = static_cast<ptrdiff_t>(plan.out_width) * 3;
    ResizeScratch scratch;
    resize(plan, first, stride, item.out, out_stride, scratch);
}

void FillJob::work(Worker &worker, size_t row) {
    const CropItem &item = items_[row];
    worker.buffer.decoding = coefficient_bytes(item);
    const Bytes bytes = source_->read(item.place, worker.buffer);
    if (!crcs_.empty() && crc32c(bytes.data, bytes.size) != crcs_[item.place]) {
        throw ChecksumError("its bytes do not match their checksum");
    }
    decode_crop(worker, bytes, item);
}

void LoadJob::work(Worker &worker, size_t row) {
    worker.buffer.decoding = 0;
    const Bytes bytes = source_->read(row, worker.buffer);
    samples_->set(row, bytes);
    const uint8_t *data = bytes.data;
    if (bytes.size >= 3 && data[0] == 0xFF && data[1] == kSoi && data[2] == 0xFF) {
        const JpegHeader header = read_jpeg_header(data, bytes.size, worker.limits);
        sizes_[row] = {header.width, header.height};
    }
}

}  // namespace fastdata
