#include "jpeg/baseline.h"

#include <algorithm>
#include <cstring>

namespace fastdata {
namespace {

template <typename T>
void grow(std::vector<T> &vector, size_t size) {
    if (vector.size() < size) vector.resize(size);
}

void gray_to_rgb(const uint8_t *gray, int count, uint8_t *out) {
    for (int i = 0; i < count; ++i, out += 3) out[0] = out[1] = out[2] = gray[i];
}

void interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, int count, uint8_t *out) {
    for (int i = 0; i < count; ++i, out += 3) out[0] = r[i], out[1] = g[i], out[2] = b[i];
}

}  // namespace

bool BaselineDecoder::prepare(const jpeg_decompress_struct *info, const JpegLayout &layout) {
    if (!layout.one_scan || info->comps_in_scan != info->num_components) return false;
    if (info->num_components == 1 && info->jpeg_color_space == JCS_GRAYSCALE) {
        colours_ = Colours::kGray;
    } else if (info->num_components == 3 && info->jpeg_color_space == JCS_YCbCr) {
        colours_ = Colours::kYcc;
    } else if (info->num_components == 3 && info->jpeg_color_space == JCS_RGB) {
        colours_ = Colours::kRgb;
    } else {
        return false;
    }
    return codes_.read(info) && take_planes(info, layout);
}

bool BaselineDecoder::take_planes(const jpeg_decompress_struct *info, const JpegLayout &layout) {
    planes_ = info->num_components;
    across_ = down_ = 0;
    const int max_h = layout.mcu_width / DCTSIZE, max_v = layout.mcu_height / DCTSIZE;
    for (int c = 0; c < planes_; ++c) {
        const jpeg_component_info &component = info->comp_info[c];
        Plane &plane = plane_[c];
        // A scan of one component has one block an MCU, whatever its sampling factors.
        plane.h = planes_ == 1 ? 1 : component.h_samp_factor;
        plane.v = planes_ == 1 ? 1 : component.v_samp_factor;
        if (max_h % plane.h != 0 || max_v % plane.v != 0) return false;
        plane.expand_h = max_h / plane.h;
        plane.expand_v = max_v / plane.v;
        plane.width = ceil_div(layout.width, plane.expand_h);
        plane.height = ceil_div(layout.height, plane.expand_v);
        plane.fancy = (plane.expand_h == 2 && plane.expand_v <= 2 && plane.width > 2) ||
                      (plane.expand_h == 1 && plane.expand_v == 2);
        if (plane.fancy && plane.expand_h == 2) across_ = 1;
        if (plane.fancy && plane.expand_v == 2) down_ = 1;
        const JQUANT_TBL *table =
            component.quant_tbl_no < NUM_QUANT_TBLS ? info->quant_tbl_ptrs[component.quant_tbl_no]
                                                    : nullptr;
        if (!table) return false;
        std::copy(table->quantval, table->quantval + DCTSIZE2, plane.table);
    }
    McuPlace *place = mcu_place_;
    for (int c = 0; c < info->comps_in_scan; ++c) {
        const int number = info->cur_comp_info[c]->component_index;
        for (int y = 0; y < plane_[number].v; ++y) {
            for (int x = 0; x < plane_[number].h; ++x) {
                *place++ = {number, DCTSIZE * x, DCTSIZE * y};
            }
        }
    }
    return true;
}

RgbView BaselineDecoder::decode(const JpegLayout &layout, const uint8_t *data, size_t size,
                                const Box &region, const JpegKernels &kernels) {
    kernels_ = &kernels;
    const Extent extent = begin(layout, data, size, region);
    const int width = region.x1 - region.x0;
    const ptrdiff_t stride = ptrdiff_t{3} * width;
    grow(pixels_, static_cast<size_t>(stride) * (region.y1 - region.y0) + kSampleSlack);

    int y = region.y0;
    const int64_t first_mcu = int64_t{extent.top} * mcus_per_row_ + extent.first;
    const auto begins = static_cast<int>(run_of(first_mcu) * interval_ / mcus_per_row_);
    for (int row = begins; row < extent.end_row; ++row) {
        read_row(extent, row);
        if (row < extent.top) continue;
        transform_row(extent, row);
        // Interpolating the last row of pixels has to wait for the samples below it.
        const int complete = (row + 1) * layout.mcu_height - down_;
        const int end = row + 1 < extent.end_row ? std::min(complete, region.y1) : region.y1;
        // From the top down, since kernels may write past a row's end, into the next.
        for (; y < end; ++y) emit_row(region, y, pixels_.data() + stride * (y - region.y0));
    }
    return {pixels_.data(), stride, width, region.y1 - region.y0};
}

BaselineDecoder::Extent BaselineDecoder::begin(const JpegLayout &layout, const uint8_t *data,
                                               size_t size, const Box &region) {
    carried_ = -1;
    mcus_per_row_ = layout.mcus_per_row;
    mcus_ = int64_t{layout.mcus_per_row} * layout.mcu_rows;
    interval_ = layout.restart_interval ? layout.restart_interval : mcus_;

    const Extent extent{std::max(region.x0 - across_, 0) / layout.mcu_width,
                        (std::min(region.x1 + across_, layout.width) - 1) / layout.mcu_width + 1,
                        std::max(region.y0 - down_, 0) / layout.mcu_height,
                        (std::min(region.y1 + down_, layout.height) - 1) / layout.mcu_height + 1};
    const auto coded = static_cast<int64_t>(size - layout.coded);
    const int64_t blocks_needed = int64_t{extent.end - extent.first} *
                                  (extent.end_row - extent.top) * codes_.mcu().blocks;
    // A block takes at least two bits, which bounds what is allocated for an image that claims
    // more.
    if (2 * blocks_needed > 8 * coded) throw_corrupt("premature end of the image");
     const int64_t runs = run_of(mcus_ - 1) + 1;
    coded_runs_.start(data, size, layout.coded, runs);
    // Every run but the last ends in a marker of two bytes, so there are at most coded / 2 + 1 of
    // them.
    grow(bytes_,
         static_cast<size_t>(coded + (std::min(runs, coded / 2) + 1) * BitPlace::kPadding));
    const auto blocks = static_cast<size_t>(mcus_per_row_) * codes_.mcu().blocks;
    const auto parts = static_cast<size_t>(mcus_per_row_ / interval_ + 2);
    grow(coefficients_, blocks * DCTSIZE2);
    grow(coded_, blocks);
    grow(streams_, parts);
    grow(block_of_, static_cast<size_t>(extent.end - extent.first));
    for (int p = 0; p < planes_; ++p) {
        Plane &plane = plane_[p];
        plane.columns = (extent.end - extent.first) * plane.h * DCTSIZE;
        plane.first_column = extent.first * plane.h * DCTSIZE;
        plane.ring_rows = 2 * DCTSIZE * (plane.v == 3 ? 4 : plane.v);
        plane.stride = (kMargin + plane.columns + kSampleSlack + 63) / 64 * 64;
        grow(plane.ring, static_cast<size_t>(plane.stride) * plane.ring_rows);
        const int pixels = (extent.end - extent.first) * layout.mcu_width;
        grow(plane.pixels, static_cast<size_t>(pixels + 2 * kSampleSlack));
    }
    return extent;
}

// Reads the coefficients of the runs that the extent needs in a row. Above the extent that is only
// the run that leads into it.
void BaselineDecoder::read_row(const Extent &extent, int row) {
    const int64_t start = int64_t{row} * mcus_per_row_, end = start + mcus_per_row_;
    const int64_t first = run_of(start + extent.first), last = run_of(start + extent.end - 1);
    const int64_t rows_last = run_of(end - 1);
    const bool continues = row + 1 < extent.end_row && run_of(end + extent.first) == rows_last;
    if (carried_ < 0) bytes_used_ = 0;
    parts_.clear();
    streams_used_ = 0;
    blocks_used_ = 0;
    if (row >= extent.top) {
        for (int64_t run = first; run <= last; ++run) {
            const bool all = continues && run == rows_last;
            add_part(extent, start, run, all ? end : start + extent.end);
        }
    }
    if (continues && (row < extent.top || rows_last > last)) add_part(extent, start, rows_last, end);

    const bool good = decode_streams(codes_.mcu(), parts_.data(), parts_.size());
    for (const StreamPart &part : parts_) {
        if (part.stream->overran()) throw_corrupt("premature end of data segment");
    }
    if (!good) throw_corrupt("bad Huffman code");
    carried_ = continues ? rows_last : -1;
    if (continues && parts_.back().stream != &carry_) carry_ = *parts_.back().stream;
}

// Adds the part of a run that lies in the row beginning with MCU `start`, and before MCU `to`.
void BaselineDecoder::add_part(const Extent &extent, int64_t start, int64_t run, int64_t to) {
    const int64_t from = std::max(run * interval_, start);
    to = std::min({to, (run + 1) * interval_, mcus_});
    RunStream *stream = &carry_;
    if (run != carried_) {
        stream = &streams_[streams_used_++];
        start_run(run, *stream);
    }
    const auto blocks = static_cast<size_t>(to - from) * codes_.mcu().blocks;
    const size_t first = blocks_used_;
    const int64_t wanted = start + extent.first, wanted_end = start + extent.end;
    for (int64_t mcu = std::max(from, wanted); mcu < std::min(to, wanted_end); ++mcu) {
        block_of_[static_cast<size_t>(mcu - wanted)] =
            first + static_cast<size_t>(mcu - from) * codes_.mcu().blocks;
    }
    blocks_used_ += blocks;
    int16_t *coefficients = coefficients_.data() + first * DCTSIZE2;
    std::memset(coefficients, 0, blocks * DCTSIZE2 * sizeof *coefficients);
    parts_.push_back({stream, blocks, coefficients, coded_.data() + first});
}

void BaselineDecoder::start_run(int64_t run, RunStream &stream) {
    while (coded_runs_.next() < run) coded_runs_.take(nullptr);
    uint8_t *begin = bytes_.data() + bytes_used_;
    const auto length = static_cast<size_t>(coded_runs_.take(begin) - begin);
    // Zeros, so that damage fails in the same way each time.
    std::memset(begin + length, 0, BitPlace::kPadding);
    stream.start(begin, length);
    bytes_used_ += length + BitPlace::kPadding;
}

void BaselineDecoder::transform_row(const Extent &extent, int row) {
    for (int column = 0; column < extent.end - extent.first; ++column) {
        size_t block = block_of_[static_cast<size_t>(column)];
        for (int b = 0; b < codes_.mcu().blocks; ++b, ++block) {
            const McuPlace &place = mcu_place_[b];
            Plane &plane = plane_[place.plane];
            const int x = column * plane.h * DCTSIZE + place.x;
            const int y = row * plane.v * DCTSIZE + place.y;
            kernels_->idct(coefficients_.data() + block * DCTSIZE2, plane.table, coded_[block],
                           plane.row(y) + x, plane.stride);
        }
    }
    for (int p = 0; p < planes_; ++p) {
        if (plane_[p].fancy && plane_[p].expand_h == 2) fill_edges(plane_[p], row);
    }
}

// Repeats the image's first and last samples outside it, where interpolation looks for neighbours.
void BaselineDecoder::fill_edges(Plane &plane, int row) {
    const int end = plane.width - plane.first_column;
    const bool ends = end <= plane.columns;
    for (int y = row * plane.v * DCTSIZE; y < (row + 1) * plane.v * DCTSIZE; ++y) {
        uint8_t *samples = plane.row(y);
        if (plane.first_column == 0) samples[-1] = samples[0];
        if (ends) samples[end] = samples[end - 1];
    }
}

void BaselineDecoder::emit_row(const Box &region, int y, uint8_t *out) {
    const int width = region.x1 - region.x0;
    const uint8_t *rows[3] = {};
    for (int p = 0; p < planes_; ++p) rows[p] = upsampled(plane_[p], region, y);
    switch (colours_) {
        case Colours::kGray: return gray_to_rgb(rows[0], width, out);
        case Colours::kRgb: return interleave(rows[0], rows[1], rows[2], width, out);
        case Colours::kYcc: return kernels_->ycc_to_rgb(rows[0], rows[1], rows[2], width, out);
    }
}

// Returns the plane's samples for the region's pixels in row y.
const uint8_t *BaselineDecoder::upsampled(Plane &plane, const Box &region, int y) {
    const int first = region.x0 / plane.expand_h;
    const int count = (region.x1 - 1) / plane.expand_h - first + 1;
    const int skip = region.x0 % plane.expand_h;
    const int row = y / plane.expand_v, column = first - plane.first_column;
    const uint8_t *near = plane.row(row) + column;
    uint8_t *out = plane.pixels.data();
    if (!plane.fancy) {
        if (plane.expand_h == 1) return near;
        for (int i = 0; i < count; ++i) {
            std::memset(out + i * plane.expand_h, near[i], static_cast<size_t>(plane.expand_h));
        }
        return out + skip;
    }
    if (plane.expand_v == 1) {
        kernels_->upsample_h2(near, count, out);
        return out + skip;
    }
    const bool lower = y % 2 != 0;
    const int other = lower ? std::min(row + 1, plane.height - 1) : std::max(row - 1, 0);
    const uint8_t *far = plane.row(other) + column;
    if (plane.expand_h == 1) {
        kernels_->upsample_v2(near, far, lower ? 2 : 1, count, out);
    } else {
        kernels_->upsample_h2v2(near, far, count, out);
    }
    return out + skip;
}

}  // namespace fastdata
