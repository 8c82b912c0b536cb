#include "jpeg/codes.h"

namespace fastdata {

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

}  // namespace fastdata
