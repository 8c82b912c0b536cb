// Huffman decoding in libjpeg-turbo's place: faster, and without the runs that a crop leaves out.
//
// libjpeg-turbo asks its entropy decoder for one MCU after another. Here that question is answered
// from the coded bytes directly: an MCU outside of the crop is not decoded at all unless one that
// is wanted follows it in the same restart run. The rest (dequantisation, IDCT, upsampling,
// colours) stays libjpeg-turbo's, and so do the pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg_codec.h"
#include "jpeg_huffman.h"
#include "jpeg_layout.h"

namespace fastdata {

class JpegEntropy {
  public:
    // Whether the linked libjpeg-turbo is one whose entropy decoder can be replaced.
    static bool available();

    // Makes room for decoding the image's one scan. Call before install, outside of libjpeg.
    void prepare(const JpegLayout &layout, const uint8_t *data, size_t size);

    // Takes over from jpeg_start_decompress on. Only for images whose layout says `one_scan`.
    // False, with nothing changed, where libjpeg has to decode itself.
    bool install(jpeg_decompress_struct *info);

    // MCUs first <= column < end are wanted; of others the pixels are undefined.
    void want_columns(int first, int end) {
        first_wanted_ = first;
        end_wanted_ = end;
    }

  private:
    static boolean answer(jpeg_decompress_struct *info, JBLOCKROW *blocks);
    bool next_mcu(jpeg_decompress_struct *info, JBLOCKROW *blocks);
    void start_run(jpeg_decompress_struct *info, int64_t run);
    uint8_t *pass_run(jpeg_decompress_struct *info, uint8_t *out);
    void read_mcu(jpeg_decompress_struct *info, JBLOCKROW *blocks);

    const uint8_t *data_ = nullptr;
    size_t size_ = 0;
    size_t at_ = 0;                // where the coded bytes of the next run begin
    int64_t next_run_ = 0;
    int64_t next_ = 0;             // the MCU that libjpeg asks for next ...
    int column_ = 0;               // ... and its place in its row
    int64_t in_run_ = -1;          // the MCU that reader_ is at, -1 for none
    int64_t run_end_ = 0;          // the MCU after the run's last one
    int64_t mcus_ = 0;
    int mcus_per_row_ = 0;
    int interval_ = 0;
    int first_wanted_ = 0;
    int end_wanted_ = 0;

    BlockReader reader_;
    std::vector<uint8_t> bytes_;   // a run's coded bytes without stuffing
    HuffmanLookup dc_[4];
    HuffmanLookup ac_[4];
    uint32_t last_dc_[4];

    struct Block {
        const HuffmanLookup *dc;
        const HuffmanLookup *ac;
        uint32_t *last;  // DC of the component's last block
    };
    Block blocks_[D_MAX_BLOCKS_IN_MCU];
    int blocks_in_mcu_ = 0;
};

}  // namespace fastdata
