#include "pool/batch_jobs.h"

#include <algorithm>

#include "system/crc32c.h"
#include "jpeg/header.h"
#include "jpeg/layout.h"

namespace fastdata {
namespace {

// The decoder's boxes are of ints. A place that none can hold becomes one that no image has, so
// that it is refused like any other instead of wrapping around into the image.
int narrowed(int64_t place) { return int(std::clamp<int64_t>(place, -(1 << 30), 1 << 30)); }

// At most that decoding takes beside the pixels of the region: libjpeg-turbo keeps all coefficients
// of an image that comes in several scans.
size_t coefficient_bytes(const CropItem &item) {
    const int64_t most = 65535;  // pixels along a side of a JPEG
    return size_t(8 * std::clamp<int64_t>(item.image.width, 0, most) *
                  std::clamp<int64_t>(item.image.height, 0, most));
}

size_t pixel_bytes(const SourceWindow &window) {
    return size_t{4} * size_t(window.width()) * size_t(window.height());
}

// Waits for the memory that decoding takes, where that is much.
void lease_memory(Worker &worker, const Bytes &bytes, const CropItem &item,
                  const SourceWindow &window) {
    const size_t pixels = pixel_bytes(window), coefficients = coefficient_bytes(item);
    if (worker.lease.large() || pixels + coefficients < kSmallDecode) return;
    JpegLayout layout;
    read_jpeg_layout(bytes.data, bytes.size, worker.limits, layout);
    worker.lease.take(pixels + (layout.sequential() && layout.one_scan ? 0 : coefficients));
}

}  // namespace

void decode_crop(Worker &worker, const Bytes &bytes, const CropItem &item) {
    SourceWindow window = needed(item.plan);
    RgbView view;
    if (window.width() > 0 && window.height() > 0) {
        lease_memory(worker, bytes, item, window);
        int x = narrowed(item.x), y = narrowed(item.y);
        const Box region{x + window.x0, y + window.y0, x + window.x1, y + window.y1};
        view = worker.decoder.decode_region(bytes.data, bytes.size, region, worker.way,
                                            item.image);
    }
    ptrdiff_t stride = ptrdiff_t(item.plan.out_width) * 3;
    resize(item.plan, view.pixels, view.stride, item.out, stride, worker.scratch);
}

void FillJob::work(Worker &worker, size_t row) {
    const CropItem &item = items_[row];
    worker.buffer.beside = coefficient_bytes(item);
    Bytes bytes = source_->read(item.place, worker.buffer);
    if (!crcs_.empty() && crc32c(bytes.data, bytes.size) != crcs_[item.place]) {
        throw ChecksumError("its bytes do not match their checksum");
    }
    decode_crop(worker, bytes, item);
}

void LoadJob::work(Worker &worker, size_t row) {
    worker.buffer.beside = 0;
    Bytes bytes = source_->read(row, worker.buffer);
    samples_->set(row, bytes);
    if (bytes.size >= 3 && bytes.data[0] == 0xFF && bytes.data[1] == 0xD8 && bytes.data[2] == 0xFF) {
        JpegHeader header = read_jpeg_header(bytes.data, bytes.size, worker.limits);
        sizes_[row] = {header.width, header.height};
    }
}

}  // namespace fastdata
