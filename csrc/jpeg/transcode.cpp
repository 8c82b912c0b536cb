#include "jpeg/transcode.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "jpeg/codec.h"
#include "jpeg/header.h"
#include "jpeg/runs.h"
#include "jpeg/streams.h"
#include "jpeg/symbols.h"

#include <jerror.h>

namespace fastdata {
namespace {

// A growing buffer that libjpeg writes to. libjpeg's own jpeg_mem_dest leaks after an error.
struct Destination {
    jpeg_destination_mgr base;  // first: libjpeg hands back its address
    uint8_t *bytes = nullptr;
    size_t capacity = 0;

    ~Destination() { std::free(bytes); }
};

Destination *destination(j_compress_ptr info) {
    return reinterpret_cast<Destination *>(info->dest);
}

void grow(j_compress_ptr info, size_t used, size_t capacity) {
    Destination *to = destination(info);
    void *bytes = std::realloc(to->bytes, capacity);
    if (!bytes) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
    to->bytes = static_cast<uint8_t *>(bytes);
    to->capacity = capacity;
    to->base.next_output_byte = to->bytes + used;
    to->base.free_in_buffer = capacity - used;
}

void start_output(j_compress_ptr info) { grow(info, 0, destination(info)->capacity); }

// libjpeg calls this when the buffer is full, whatever free_in_buffer says.
boolean extend_output(j_compress_ptr info) {
    const size_t used = destination(info)->capacity;
    grow(info, used, 2 * used);
    return TRUE;
}

void end_output(j_compress_ptr) {}

bool starts_with(const jpeg_saved_marker_ptr m, const char *text, size_t length) {
    return m->data_length >= length && std::memcmp(m->data, text, length) == 0;
}

bool is_kept(const jpeg_saved_marker_ptr m) {
    switch (m->marker) {
        case JPEG_APP0: return starts_with(m, "JFIF\0", 5);
        case JPEG_APP0 + 1: return starts_with(m, "Exif\0\0", 6);
        case JPEG_APP0 + 2: return starts_with(m, "ICC_PROFILE\0", 12);
        case JPEG_APP0 + 14: return starts_with(m, "Adobe", 5);
        default: return false;
    }
}

// Rewrites versions and transforms that libjpeg does not know to those it takes them for, so that
// it decodes the result in the same way but without a warning.
void normalise(jpeg_decompress_struct *in) {
    for (jpeg_saved_marker_ptr m = in->marker_list; m; m = m->next) {
        if (m->marker == JPEG_APP0 && m->data_length >= 14 && starts_with(m, "JFIF\0", 5)) {
            m->data[5] = 1;
        }
        const int known = in->num_components == 4 ? 2 : 1;
        if (m->marker == JPEG_APP0 + 14 && m->data_length >= 12 && starts_with(m, "Adobe", 5) &&
            m->data[11] != 0) {
            m->data[11] = static_cast<JOCTET>(known);
        }
    }
}

// Reads the header, and keeps what is needed of the segments in it.
void read_header(jpeg_decompress_struct *info, JpegSource &source, const uint8_t *data,
                 size_t size) {
    source.install(info, data, size);
    for (int app : {0, 1, 2, 14}) jpeg_save_markers(info, JPEG_APP0 + app, 0xFFFF);
    jpeg_read_header(info, TRUE);
}

bool has_8_bits(const JQUANT_TBL &table) {
    return std::all_of(std::begin(table.quantval), std::end(table.quantval),
                       [](UINT16 q) { return q <= 255; });
}

bool mcu_fits(const jpeg_decompress_struct *info) {
    int blocks = 0;
    for (int c = 0; c < info->num_components; ++c) {
        blocks += info->comp_info[c].h_samp_factor * info->comp_info[c].v_samp_factor;
    }
    return info->num_components == 1 || blocks <= McuCodes::kMaxBlocks;
}

// Whether baseline can carry the coefficients that libjpeg has read, or why not.
Transcoded check(const jpeg_decompress_struct *info) {
    for (int c = 0; c < info->num_components; ++c) {
        const JQUANT_TBL *table = info->comp_info[c].quant_table;
        if (!table) return Transcoded::kUnfinished;  // no scan had this component
        if (!has_8_bits(*table)) return Transcoded::kQuantisationTables;
        for (int i = 0; info->progressive_mode && i < DCTSIZE2; ++i) {
            if (info->coef_bits[c][i] != 0) return Transcoded::kUnfinished;
        }
    }
    return mcu_fits(info) ? Transcoded::kDone : Transcoded::kMcuTooLarge;
}

void write_all(jpeg_compress_struct *out, jpeg_decompress_struct *in, jvirt_barray_ptr *blocks,
               int interval) {
    jpeg_copy_critical_parameters(in, out);
    // The source's own segments are written instead, from which decoders read the same colours.
    out->write_JFIF_header = FALSE;
    out->write_Adobe_marker = FALSE;
    out->optimize_coding = TRUE;
    out->arith_code = FALSE;
    out->restart_interval = static_cast<unsigned>(interval);
    jpeg_write_coefficients(out, blocks);
    for (jpeg_saved_marker_ptr m = in->marker_list; m; m = m->next) {
        if (is_kept(m)) jpeg_write_marker(out, m->marker, m->data, m->data_length);
    }
    jpeg_finish_compress(out);
}

// Why libjpeg refused to write what it could read. Throws the error if it is another one.
Transcoded explain(const JpegError &error) {
    switch (error.code()) {
        case JERR_BAD_DCT_COEF: return Transcoded::kCoefficientRange;
        case JERR_MISMATCHED_QUANT_TABLE: return Transcoded::kQuantisationTables;
        default: throw error;
    }
}

// Re-encodes the coefficients. Of libjpeg's warnings of stray bytes, `strays` are about bytes
// between segments; any more are about bytes left over in coded data.
Transcoded recode_coefficients(const uint8_t *data, size_t size, int interval, Tolerated tolerated,
                               int strays, TranscodeResult &result) {
    JpegSource source;
    JpegDecompressor in(tolerated);
    jvirt_barray_ptr *blocks = nullptr;
    in.call([&](jpeg_decompress_struct *info) {
        read_header(info, source, data, size);
        blocks = jpeg_read_coefficients(info);
        normalise(info);
    });
    result.warned = result.warned || in.warnings() > in.strays();
    result.left_over = in.strays() > strays;
    if (const Transcoded refusal = check(in.get()); refusal != Transcoded::kDone) return refusal;

    Destination to;
    to.base.init_destination = start_output;
    to.base.empty_output_buffer = extend_output;
    to.base.term_destination = end_output;
    to.capacity = size + 4096;
    JpegCompressor out;
    // From here on errors of the reader, too, have to jump to the writer's call.
    jpeg_error_mgr *const readers = in->err;
    in->err = out->err;
    try {
        out.call([&](jpeg_compress_struct *info) {
            info->dest = &to.base;
            write_all(info, in.get(), blocks, interval);
        });
    } catch (const JpegError &error) {
        in->err = readers;
        return explain(error);
    }
    in->err = readers;
    result.bytes.assign(to.bytes, to.bytes + (to.capacity - to.base.free_in_buffer));
    return Transcoded::kDone;
}

// What runs of `k` MCUs cost, in pixels of a row: what a crop decodes beyond its edges (at most the
// 0.4 of the row that a random crop leaves), and what the markers add. The 1.25 keeps photographs
// within 2 % of their size for a `run_pixels` of 32: runs of 8 pixels take 7.5 % more bytes, of 24
// 2.8 % and of 56 1.2 %. Rows of a prime number of MCUs get runs of one MCU if that is cheaper.
double run_cost(const JpegLayout &layout, int k, double run_pixels) {
    const double length = k * layout.mcu_width;
    return std::min(length, 0.4 * layout.width) + 1.25 * run_pixels * run_pixels / length;
}

// Parameters that a sequential scan cannot have. libjpeg warns of them when it decodes, and decodes
// as if they were right.
bool has_odd_scan(const jpeg_decompress_struct *info) {
    return info->Ss != 0 || info->Se != DCTSIZE2 - 1 || info->Ah != 0 || info->Al != 0;
}

// Re-encodes the file's own symbols, which is three times as fast.
Recoded recode_scan(const uint8_t *data, size_t size, const JpegLayout &layout, int interval,
                    TranscodeResult &result) {
    JpegSource source;
    JpegDecompressor in;
    in.call([&](jpeg_decompress_struct *info) {
        read_header(info, source, data, size);
        normalise(info);
    });
    for (int c = 0; c < in->num_components; ++c) {
        const JQUANT_TBL *table = in->quant_tbl_ptrs[in->comp_info[c].quant_tbl_no];
        if (!table || !has_8_bits(*table)) return Recoded::kNotThisWay;
    }
    if (!mcu_fits(in.get())) return Recoded::kNotThisWay;
    std::vector<uint8_t> &out = result.bytes;
    size_t kept = 0;
    for (jpeg_saved_marker_ptr m = in->marker_list; m; m = m->next) {
        if (is_kept(m)) kept += m->data_length + 4;
    }
    out.reserve(kept + size - layout.coded + 4096);  // growing would take up to three times that
    out = {0xFF, kSoi};
    for (jpeg_saved_marker_ptr m = in->marker_list; m; m = m->next) {
        if (!is_kept(m)) continue;
        const size_t length = m->data_length + 2;
        out.insert(out.end(), {0xFF, m->marker, static_cast<uint8_t>(length >> 8),
                               static_cast<uint8_t>(length)});
        out.insert(out.end(), m->data, m->data + m->data_length);
    }
    const Recoded outcome =
        recode_symbols(in.get(), layout, data, size, interval, out, result.left_over);
    out.insert(out.end(), {0xFF, kEoi});
    result.warned = result.warned || in.warnings() > in.strays() || has_odd_scan(in.get());
    return outcome;
}

bool has_runs(const JpegLayout &layout, const uint8_t *data, size_t size, int interval) {
    RunIndex runs;
    return layout.restart_interval == interval && runs.find(layout, data, size, layout.mcu_rows);
}

}  // namespace

const char *describe(Transcoded outcome) {
    switch (outcome) {
        case Transcoded::kDone: return "transcoded";
        case Transcoded::kHasRuns: return "has restart runs already";
        case Transcoded::kUnfinished: return "progressive without its last refinement scan";
        case Transcoded::kCoefficientRange: return "coefficients beyond baseline's range";
        case Transcoded::kMcuTooLarge: return "more than 10 blocks an MCU";
        case Transcoded::kQuantisationTables: return "quantisation tables that baseline lacks";
    }
    return "";
}

int choose_restart_interval(const JpegLayout &layout, int run_pixels) {
    int best = 1;
    for (int k = 2; k <= layout.mcus_per_row; ++k) {
        if (layout.mcus_per_row % k != 0) continue;
        if (run_cost(layout, k, run_pixels) < run_cost(layout, best, run_pixels)) best = k;
    }
    return best;
}

TranscodeResult transcode(const uint8_t *data, size_t size, int run_pixels,
                          const JpegLimits &limits, Tolerated tolerated) {
    const JpegHeader header = read_jpeg_header(data, size, limits);
    const bool ends_here = header.ends && header.end == size;
    size = header.end;
    JpegLayout layout;
    read_jpeg_layout(data, size, limits, layout);
    const int interval = choose_restart_interval(layout, run_pixels);
    TranscodeResult result;
    result.warned = header.strays > 0 || !header.ends;
    if (tolerated == Tolerated::kHarmless && layout.own_tables) {
        const Recoded outcome = recode_scan(data, size, layout, interval, result);
        const bool clean = ends_here && !result.warned && !result.left_over;
        if (outcome == Recoded::kDone && clean && has_runs(layout, data, size, interval)) {
            result.outcome = Transcoded::kHasRuns;
        }
        if (outcome == Recoded::kCoefficientRange) result.outcome = Transcoded::kCoefficientRange;
        if (result.outcome != Transcoded::kDone) result.bytes.clear();
        if (outcome != Recoded::kNotThisWay) return result;
        result.bytes.clear();
    }
    result.outcome = recode_coefficients(data, size, interval, tolerated, header.strays, result);
    return result;
}

}  // namespace fastdata
