#include "jpeg/scan.h"

#include <cstring>
#include <string>

#include "jpeg/segments.h"

namespace fastdata {

void throw_corrupt(const char *what) {
    throw DecodeError(std::string("Corrupt JPEG data: ") + what);
}

bool ScanCodes::read(const jpeg_decompress_struct *info) {
    mcu_.blocks = 0;
    for (int c = 0; c < info->comps_in_scan; ++c) {
        const jpeg_component_info *component = info->cur_comp_info[c];
        const int dc = component->dc_tbl_no, ac = component->ac_tbl_no;
        if (dc < 0 || dc >= NUM_HUFF_TBLS || ac < 0 || ac >= NUM_HUFF_TBLS) return false;
        const JHUFF_TBL *dc_table = info->dc_huff_tbl_ptrs[dc];
        const JHUFF_TBL *ac_table = info->ac_huff_tbl_ptrs[ac];
        if (!dc_table || !dc_[dc].build(dc_table->bits, dc_table->huffval, true)) return false;
        if (!ac_table || !ac_[ac].build(ac_table->bits, ac_table->huffval, false)) return false;
        // A scan of one component has one block an MCU, whatever its sampling factors.
        const int blocks =
            info->comps_in_scan == 1 ? 1 : component->h_samp_factor * component->v_samp_factor;
        if (mcu_.blocks + blocks > McuCodes::kMaxBlocks) return false;
        for (int b = 0; b < blocks; ++b) mcu_.block[mcu_.blocks++] = {&dc_[dc], &ac_[ac], c};
    }
    return true;
}

void CodedRuns::start(const uint8_t *data, size_t size, size_t at, int64_t runs) {
    data_ = data;
    size_ = size;
    at_ = at;
    next_ = 0;
    runs_ = runs;
}

uint8_t *CodedRuns::take(uint8_t *out) {
    bool readable = true;
    for (marker_ = 0; marker_ == 0;) {
        const void *found = std::memchr(data_ + at_, 0xFF, size_ - at_);
        const size_t end =
            found ? static_cast<size_t>(static_cast<const uint8_t *>(found) - data_) : size_;
        size_t after = end;
        while (after < size_ && data_[after] == 0xFF) ++after;
        const bool cut = after == size_;
        if (cut && next_ + 1 < runs_) throw_corrupt("premature end of the image");
        marker_ = cut ? int{kCut} : data_[after];
        const bool stuffing = marker_ == 0 && after == end + 1;  // 0xff00 stands for a byte 0xff
        if (out && readable) {
            const size_t count = end - at_ + stuffing;
            std::memcpy(out, data_ + at_, count);
            out += count;
        }
        // Fill bytes may only precede markers. After others libjpeg-turbo continues, but mixes in
        // what its fast path had already read of that MCU, so we take nothing after them for data.
        readable = readable && (marker_ != 0 || stuffing);
        at_ = cut ? size_ : after + 1;
    }
    const auto number = static_cast<int>(next_++ % 8);
    if (next_ < runs_ && marker_ != kRst0 + number) throw_corrupt("a restart marker is missing");
    return out;
}

}  // namespace fastdata
