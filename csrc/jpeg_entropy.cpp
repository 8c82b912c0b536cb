#include "jpeg_entropy.h"

#include <algorithm>
#include <cstring>

#include <jerror.h>

namespace fastdata {
namespace {

// How libjpeg-turbo's own struct of this name begins, from 1.0 to 3.2 (jpegint.h, which is not
// installed).
struct EntropyDecoder {
    void (*start_pass)(j_decompress_ptr);
    boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW *);
};

EntropyDecoder *entropy(jpeg_decompress_struct *info) {
    return reinterpret_cast<EntropyDecoder *>(info->entropy);
}

}  // namespace

bool JpegEntropy::available() { return LIBJPEG_TURBO_VERSION_NUMBER < 3003000; }

void JpegEntropy::prepare(const JpegLayout &layout, const uint8_t *data, size_t size) {
    data_ = data;
    size_ = size;
    at_ = layout.coded;
    next_run_ = next_ = 0;
    column_ = 0;
    in_run_ = -1;
    mcus_per_row_ = layout.mcus_per_row;
    mcus_ = int64_t{layout.mcus_per_row} * layout.mcu_rows;
    interval_ = layout.restart_interval;
    first_wanted_ = 0;
    end_wanted_ = mcus_per_row_;
    const size_t room = size - at_ + BlockReader::kPadding;
    if (bytes_.size() < room) bytes_.resize(room);
}

bool JpegEntropy::install(jpeg_decompress_struct *info) {
    if (info->progressive_mode || info->arith_code) return false;
    for (int c = 0; c < info->comps_in_scan; ++c) {
        const jpeg_component_info *component = info->cur_comp_info[c];
        const int dc = component->dc_tbl_no, ac = component->ac_tbl_no;
        bool known_dc = false, known_ac = false;
        for (int before = 0; before < c; ++before) {
            known_dc |= info->cur_comp_info[before]->dc_tbl_no == dc;
            known_ac |= info->cur_comp_info[before]->ac_tbl_no == ac;
        }
        const JHUFF_TBL *dc_table = info->dc_huff_tbl_ptrs[dc];
        const JHUFF_TBL *ac_table = info->ac_huff_tbl_ptrs[ac];
        if (!known_dc && !dc_[dc].build(dc_table->bits, dc_table->huffval, true)) return false;
        if (!known_ac && !ac_[ac].build(ac_table->bits, ac_table->huffval, false)) return false;
    }
    blocks_in_mcu_ = info->blocks_in_MCU;
    for (int b = 0; b < blocks_in_mcu_; ++b) {
        const int c = info->MCU_membership[b];
        const jpeg_component_info *component = info->cur_comp_info[c];
        blocks_[b] = {&dc_[component->dc_tbl_no], &ac_[component->ac_tbl_no], &last_dc_[c]};
    }
    info->client_data = this;
    entropy(info)->decode_mcu = answer;
    return true;
}

boolean JpegEntropy::answer(jpeg_decompress_struct *info, JBLOCKROW *blocks) {
    return static_cast<JpegEntropy *>(info->client_data)->next_mcu(info, blocks);
}

bool JpegEntropy::next_mcu(jpeg_decompress_struct *info, JBLOCKROW *blocks) {
    const int64_t mcu = next_++;
    const int column = column_;
    if (++column_ == mcus_per_row_) column_ = 0;
    if (!blocks || column < first_wanted_ || column >= end_wanted_) return true;
    if (in_run_ < 0 || mcu >= run_end_) start_run(info, interval_ ? mcu / interval_ : 0);
    while (in_run_ < mcu) read_mcu(info, nullptr);
    read_mcu(info, blocks);
    return true;
}

void JpegEntropy::start_run(jpeg_decompress_struct *info, int64_t run) {
    while (next_run_ < run) pass_run(info, nullptr);
    const uint8_t *end = pass_run(info, bytes_.data());
    reader_.start(bytes_.data(), static_cast<size_t>(end - bytes_.data()));
    in_run_ = run * interval_;
    run_end_ = interval_ ? std::min(in_run_ + interval_, mcus_) : mcus_;
    for (uint32_t &dc : last_dc_) dc = 0;
}

// Goes to the end of the next run, past the marker there; its bytes, without stuffing, go to `out`
// unless that is null. Returns where they end.
uint8_t *JpegEntropy::pass_run(jpeg_decompress_struct *info, uint8_t *out) {
    int marker = 0;
    while (marker == 0) {
        const void *found = std::memchr(data_ + at_, 0xFF, size_ - at_);
        if (!found) ERREXIT(info, JERR_INPUT_EOF);
        const size_t end = static_cast<size_t>(static_cast<const uint8_t *>(found) - data_);
        size_t after = end + 1;
        while (after < size_ && data_[after] == 0xFF) ++after;
        if (after == size_) ERREXIT(info, JERR_INPUT_EOF);
        marker = data_[after];
        // Fill bytes stand before markers alone. libjpeg-turbo goes on behind others, but mixes what
        // its fast way had read of that MCU into the image.
        if (marker == 0 && after > end + 1) {
            ERREXIT2(info, JWRN_EXTRANEOUS_DATA, static_cast<int>(after - end - 1), marker);
        }
        if (out) {
            const size_t count = end - at_ + (marker == 0);  // 0xff00 is a data byte, 0xff
            std::memcpy(out, data_ + at_, count);
            out += count;
        }
        at_ = after + 1;
    }
    const int number = static_cast<int>(next_run_++ % 8);
    const bool last = !interval_ || next_run_ * interval_ >= mcus_;
    if (!last && marker != 0xD0 + number) ERREXIT2(info, JWRN_MUST_RESYNC, marker, number);
    return out;
}

void JpegEntropy::read_mcu(jpeg_decompress_struct *info, JBLOCKROW *blocks) {
    for (int b = 0; b < blocks_in_mcu_; ++b) {
        const Block &block = blocks_[b];
        if (!reader_.read(*block.dc, *block.ac, blocks ? blocks[b][0] : nullptr, *block.last)) {
            ERREXIT(info, JWRN_HUFF_BAD_CODE);
        }
    }
    if (reader_.overran()) ERREXIT(info, JWRN_HIT_MARKER);
    if (++in_run_ == run_end_ && run_end_ != mcus_ && reader_.has_more()) {
        ERREXIT2(info, JWRN_EXTRANEOUS_DATA, 1, data_[at_ - 1]);
    }
}

}  // namespace fastdata
