#include "jpeg/decode.h"

#include <algorithm>
#include <string>
#include <vector>

#include "jpeg/baseline.h"
#include "jpeg/codec.h"
#include "jpeg/header.h"

namespace fastdata {
namespace {

constexpr int kRowsAtOnce = 32;

// Pillow's rounding of a * b / 255.
int scale255(int a, int b) {
    const int t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}

// As Pillow's convert("RGB") of a file's CMYK, which it takes for inverted (Adobe's convention).
void cmyk_to_rgb(const uint8_t *in, uint8_t *out, int pixels) {
    for (int i = 0; i < pixels; ++i, in += 4, out += 3) {
        const int white = in[3];
        for (int c = 0; c < 3; ++c) {
            out[c] = static_cast<uint8_t>(std::max(white - scale255(255 - in[c], white), 0));
        }
    }
}

// If some coefficients of a progressive image lack their full precision, libjpeg smooths its
// blocks. It looks at two blocks around each, which is more than the margin of a crop.
bool may_smooth(const jpeg_decompress_struct *info) {
    if (!info->progressive_mode || !info->coef_bits) return false;
    for (int c = 0; c < info->num_components; ++c) {
        for (int i = 0; i < DCTSIZE2; ++i) {
            if (info->coef_bits[c][i] != 0) return true;
        }
    }
    return false;
}

// The part of each row that libjpeg gives.
struct Rows {
    JDIMENSION x = 0;      // of its first pixel in the image
    JDIMENSION width = 0;  // in pixels
    int channels = 0;
};

// What libjpeg is to decode: a JPEG, which may be a cut-out, and boxes of its pixels.
struct Cutout {
    const uint8_t *data;
    size_t size;
    Box region;  // what was asked for
    Box window;  // what has to be decoded for that
};

void read_header(JpegDecompressor &jpeg, JpegSource &source, const uint8_t *data, size_t size) {
    jpeg.call([&](jpeg_decompress_struct *info) {
        source.install(info, data, size);
        jpeg_read_header(info, TRUE);
    });
}

Box moved(const Box &box, const Box &origin) {
    return {box.x0 - origin.x0, box.y0 - origin.y0, box.x1 - origin.x0, box.y1 - origin.y0};
}

void check_region(const JpegLayout &layout, const Box &r) {
    if (r.x0 < 0 || r.y0 < 0 || r.x0 >= r.x1 || r.y0 >= r.y1 || r.x1 > layout.width ||
        r.y1 > layout.height) {
        throw DecodeError("a region of x " + std::to_string(r.x0) + " to " + std::to_string(r.x1) +
                          ", y " + std::to_string(r.y0) + " to " + std::to_string(r.y1) +
                          " is not within the image's " + std::to_string(layout.width) + "x" +
                          std::to_string(layout.height) + " pixels");
    }
}

std::string text(const ImageSize &size) {
    return std::to_string(size.width) + "x" + std::to_string(size.height) + " pixels";
}

void check_size(const JpegLayout &layout, const ImageSize &stated) {
    const ImageSize found{layout.width, layout.height};
    const bool same = found.width == stated.width && found.height == stated.height;
    if (same || (stated.width == 0 && stated.height == 0)) return;
    throw DecodeError("its header says " + text(found) + ", the catalog " + text(stated));
}

}  // namespace

struct JpegDecoder::State {
    explicit State(const JpegLimits &limits) : limits(limits) {}

    JpegLimits limits;
    JpegLayout layout;
    BaselineDecoder baseline;
    RunIndex runs;
    SmallJpeg small;
    std::vector<uint8_t> pixels;
    std::vector<uint8_t> rgb;  // what CMYK was converted to

    void open(const uint8_t *data, size_t size, const Box &region, const ImageSize &stated);
    Cutout cut(const uint8_t *data, size_t size, const Box &region);
    bool find_runs(const Cutout &whole);
    RgbView decode(const uint8_t *data, size_t size, const Box &region, JpegWay way,
                   const ImageSize &stated);
    RgbView decode_with_libjpeg(const Cutout &cutout);
    Rows start(JpegDecompressor &jpeg, const Cutout &cutout);
    void read_rows(JpegDecompressor &jpeg, const Rows &rows, const Box &region);
    RgbView convert_cmyk(const RgbView &in);
};

void JpegDecoder::State::open(const uint8_t *data, size_t size, const Box &region,
                              const ImageSize &stated) {
    read_jpeg_layout(data, size, limits, layout);
    check_size(layout, stated);
    check_region(layout, region);
    // Each scan costs a visit of every pixel, so an image of several is checked against the limit.
    if (!layout.one_scan) read_jpeg_header(data, size, limits);
}

// Gives the whole image if there are no runs to leave out.
Cutout JpegDecoder::State::cut(const uint8_t *data, size_t size, const Box &region) {
    const Cutout whole{data, size, region, widen_for_upsampling(layout, region)};
    if (!find_runs(whole)) return whole;
    build_small_jpeg(layout, runs, data, whole.window, small);
    return {small.bytes.data(), small.bytes.size(), moved(whole.region, small.covers),
            moved(whole.window, small.covers)};
}

// False also if the window takes all runs, so that there is nothing to leave out.
bool JpegDecoder::State::find_runs(const Cutout &whole) {
    if (layout.restart_interval == 0) return false;
    const Box &window = whole.window;
    const int run_width = layout.restart_interval * layout.mcu_width;
    const int mcu_rows = (window.y1 - 1) / layout.mcu_height + 1;
    const bool all_columns = window.x0 < run_width && layout.width - window.x1 < run_width;
    if (all_columns && window.y0 < layout.mcu_height) return false;
    return runs.find(layout, whole.data, whole.size, mcu_rows);
}

RgbView JpegDecoder::State::decode(const uint8_t *data, size_t size, const Box &region,
                                   JpegWay way, const ImageSize &stated) {
    open(data, size, region, stated);
    const bool own = way == JpegWay::kFastest || way == JpegWay::kPortable;
    if (own && layout.one_scan) {
        JpegSource source;
        JpegDecompressor jpeg;
        read_header(jpeg, source, data, size);
        if (baseline.prepare(jpeg.get(), layout)) {
            const bool any = way == JpegWay::kPortable;
            const JpegKernels &kernels = any ? portable_jpeg_kernels() : best_jpeg_kernels();
            return baseline.decode(layout, data, size, region, kernels);
        }
    }
    if (way == JpegWay::kPlain) {
        return decode_with_libjpeg({data, size, region, widen_for_upsampling(layout, region)});
    }
    return decode_with_libjpeg(cut(data, size, region));
}

RgbView JpegDecoder::State::decode_with_libjpeg(const Cutout &cutout) {
    JpegSource source;
    JpegDecompressor jpeg;
    read_header(jpeg, source, cutout.data, cutout.size);
    const Rows rows = start(jpeg, cutout);
    const Box &region = cutout.region;
    read_rows(jpeg, rows, region);
    const RgbView view{
        pixels.data() + ptrdiff_t{rows.channels} * (region.x0 - static_cast<int>(rows.x)),
        ptrdiff_t{rows.channels} * rows.width, region.width(), region.height()};
    return rows.channels == 4 ? convert_cmyk(view) : view;
}

// Skips to the region's first row if libjpeg can.
Rows JpegDecoder::State::start(JpegDecompressor &jpeg, const Cutout &cutout) {
    Rows rows;
    jpeg.call([&](jpeg_decompress_struct *info) {
        rows.channels = info->num_components == 4 ? 4 : 3;
        info->out_color_space = rows.channels == 4 ? JCS_CMYK : JCS_EXT_RGB;
        jpeg_start_decompress(info);
        rows.width = info->output_width;
        if (may_smooth(info)) return;
        rows.x = static_cast<JDIMENSION>(cutout.window.x0);
        rows.width = static_cast<JDIMENSION>(cutout.window.width());
        jpeg_crop_scanline(info, &rows.x, &rows.width);  // moves x to the left, to an MCU
        const auto above = static_cast<JDIMENSION>(cutout.region.y0);
        if (above > 0) jpeg_skip_scanlines(info, above);
    });
    return rows;
}

// Reads the region's rows into `pixels`. Rows above it are read too where libjpeg could not skip
// them; the first one of the region overwrites them.
void JpegDecoder::State::read_rows(JpegDecompressor &jpeg, const Rows &rows, const Box &region) {
    const size_t stride = size_t{rows.width} * rows.channels;
    const auto first = static_cast<JDIMENSION>(region.y0);
    const auto end = static_cast<JDIMENSION>(region.y1);
    if (pixels.size() < stride * (end - first)) pixels.resize(stride * (end - first));
    uint8_t *base = pixels.data();
    jpeg.call([&](jpeg_decompress_struct *info) {
        while (info->output_scanline < first) jpeg_read_scanlines(info, &base, 1);
        JSAMPROW row[kRowsAtOnce];
        while (info->output_scanline < end) {
            const JDIMENSION at = info->output_scanline;
            const JDIMENSION count = std::min<JDIMENSION>(kRowsAtOnce, end - at);
            for (JDIMENSION i = 0; i < count; ++i) row[i] = base + stride * (at - first + i);
            jpeg_read_scanlines(info, row, count);
        }
    });
}

RgbView JpegDecoder::State::convert_cmyk(const RgbView &in) {
    const size_t stride = size_t{3} * in.width;
    if (rgb.size() < stride * in.height) rgb.resize(stride * in.height);
    for (int y = 0; y < in.height; ++y) {
        cmyk_to_rgb(in.pixels + y * in.stride, rgb.data() + stride * y, in.width);
    }
    return {rgb.data(), static_cast<ptrdiff_t>(stride), in.width, in.height};
}

JpegDecoder::JpegDecoder(const JpegLimits &limits) : state_(std::make_unique<State>(limits)) {}

JpegDecoder::~JpegDecoder() = default;

RgbView JpegDecoder::decode_region(const uint8_t *data, size_t size, const Box &region,
                                   JpegWay way, const ImageSize &stated) {
    return state_->decode(data, size, region, way, stated);
}

void JpegDecoder::free() { state_ = std::make_unique<State>(state_->limits); }

const SmallJpeg *JpegDecoder::cut(const uint8_t *data, size_t size, const Box &region) {
    state_->open(data, size, region, {});
    const Cutout cutout = state_->cut(data, size, region);
    return cutout.data == data ? nullptr : &state_->small;
}

}  // namespace fastdata
