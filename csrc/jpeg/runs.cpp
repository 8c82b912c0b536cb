#include "jpeg/runs.h"

#include <algorithm>
#include <cstring>

namespace fastdata {
namespace {

constexpr int kMinWidth = 8;  // pixels; see widen_for_upsampling

// Returns the offset of the next marker at or after `at`, a 0xff that no 0x00 follows; else `size`.
size_t find_marker(const uint8_t *data, size_t at, size_t size) {
    while (at + 1 < size) {
        const void *found = std::memchr(data + at, 0xFF, size - 1 - at);
        if (!found) return size;
        at = static_cast<size_t>(static_cast<const uint8_t *>(found) - data);
        if (data[at + 1] != 0) return at;
        at += 2;
    }
    return size;
}

void put_u16(uint8_t *at, int value) {
    at[0] = static_cast<uint8_t>(value >> 8);
    at[1] = static_cast<uint8_t>(value);
}

}  // namespace

Box widen_for_upsampling(const JpegLayout &layout, const Box &box) {
    Box wide{std::max(box.x0 - 1, 0), std::max(box.y0 - 1, 0),
             std::min(box.x1 + 1, layout.width), std::min(box.y1 + 1, layout.height)};
    if (wide.x1 - wide.x0 < kMinWidth) {
        wide.x0 = std::max(wide.x1 - kMinWidth, 0);
        wide.x1 = std::min(wide.x0 + kMinWidth, layout.width);
    }
    return wide;
}

bool RunIndex::find(const JpegLayout &layout, const uint8_t *data, size_t size, int mcu_rows) {
    const int interval = layout.restart_interval;
    if (!layout.one_scan || interval == 0 || layout.mcus_per_row % interval != 0) return false;
    if (size > UINT32_MAX) return false;  // starts_ has 32 bits each
    interval_ = interval;
    columns_ = layout.mcus_per_row / interval;
    const size_t wanted = static_cast<size_t>(columns_) * std::min(mcu_rows, layout.mcu_rows);
    const bool all = mcu_rows >= layout.mcu_rows;
    starts_.clear();
    starts_.push_back(static_cast<uint32_t>(layout.coded));
    size_t at = layout.coded;
    for (size_t run = 0; run < wanted; ++run) {
        at = find_marker(data, at, size);
        if (at == size) return false;
        const int marker = data[at + 1];
        if (all && run + 1 == wanted) {
            if (marker == 0xFF || (marker & 0xF8) == kRst0) return false;
        } else {
            if (marker != static_cast<int>(kRst0 + run % 8)) return false;
        }
        at += 2;
        starts_.push_back(static_cast<uint32_t>(at));
    }
    return true;
}

void build_small_jpeg(const JpegLayout &layout, const RunIndex &runs, const uint8_t *data,
                      const Box &box, SmallJpeg &small) {
    const int run_width = runs.interval() * layout.mcu_width;
    const int first = box.x0 / run_width, last = (box.x1 - 1) / run_width;
    const int top = box.y0 / layout.mcu_height, bottom = (box.y1 - 1) / layout.mcu_height;
    small.covers = {first * run_width, top * layout.mcu_height,
                    std::min((last + 1) * run_width, layout.width),
                    std::min((bottom + 1) * layout.mcu_height, layout.height)};

    size_t total = 0;
    for (const ByteRange &range : layout.needed) total += range.end - range.begin;
    for (int row = top; row <= bottom; ++row) {
        total += runs.end(row, last) + 2 - runs.begin(row, first);
    }
    small.bytes.resize(total);
    uint8_t *out = small.bytes.data();
    for (const ByteRange &range : layout.needed) {
        std::memcpy(out, data + range.begin, range.end - range.begin);
        if (range.begin <= layout.size_field && layout.size_field < range.end) {
            uint8_t *field = out + (layout.size_field - range.begin);
            put_u16(field, small.covers.y1 - small.covers.y0);
            put_u16(field + 2, small.covers.x1 - small.covers.x0);
        }
        out += range.end - range.begin;
    }
    unsigned number = 0;
    for (int row = top; row <= bottom; ++row) {
        const size_t begin = runs.begin(row, first);
        std::memcpy(out, data + begin, runs.end(row, last) - begin);
        for (int column = first; column <= last; ++column) {
            uint8_t *marker = out + (runs.end(row, column) - begin);
            marker[0] = 0xFF;
            marker[1] = static_cast<uint8_t>(kRst0 + number++ % 8);
        }
        out += runs.end(row, last) + 2 - begin;
    }
    out[-1] = kEoi;  // in place of the last restart marker
}

}  // namespace fastdata
