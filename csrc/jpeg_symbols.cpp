#include "jpeg_symbols.h"

#include <algorithm>
#include <cstring>

#include "jpeg_huffman.h"

namespace fastdata {
namespace {

constexpr int kMaxAcBits = 10, kMaxDcBits = 11;  // ITU-T T.81, F.1.2, for 8-bit samples

// Codes made for how often each symbol comes (ITU-T T.81, Annex K.2), of at most 16 bits.
struct CodeTable {
    uint8_t lengths[17] = {};  // number of codes of each length
    uint8_t symbols[256];      // in the order of their codes

    // Sets for each of 256 symbols its code, and in the low eight bits the length of that.
    void build(const uint32_t *counts, uint32_t *code) {
        uint64_t weight[257];
        int size[257] = {}, next[257];
        std::copy(counts, counts + 256, weight);
        weight[256] = 1;  // a code of its own, so that none consists of ones alone
        std::fill(std::begin(next), std::end(next), -1);
        int left[257], trees = 0;
        for (int i = 0; i <= 256; ++i) {
            if (weight[i]) left[trees++] = i;
        }
        while (trees > 1) {
            // the two lightest, of equal ones the last, so that the code set aside is a long one
            int first = 0, second = -1;
            for (int t = 1; t < trees; ++t) {
                if (weight[left[t]] <= weight[left[first]]) {
                    second = first;
                    first = t;
                } else if (second < 0 || weight[left[t]] <= weight[left[second]]) {
                    second = t;
                }
            }
            const int low = left[first], other = left[second];
            weight[low] += weight[other];
            std::copy(left + second + 1, left + trees, left + second);
            --trees;
            int i = low;
            for (++size[i]; next[i] >= 0; ++size[i]) i = next[i];
            next[i] = other;
            for (i = other; i >= 0; i = next[i]) ++size[i];
        }
        int of_size[258] = {};
        for (int s : size) ++of_size[s];
        of_size[0] = 0;
        for (int i = 257; i > 16; --i) {  // codes that are too long move up in pairs
            while (of_size[i] > 0) {
                int j = i - 2;
                while (of_size[j] == 0) --j;
                of_size[i] -= 2;
                ++of_size[i - 1];
                of_size[j + 1] += 2;
                --of_size[j];
            }
        }
        int longest = 16;
        while (longest > 0 && of_size[longest] == 0) --longest;
        if (longest > 0) --of_size[longest];  // the code that was set aside
        int filled = 0;
        for (int s = 1; s <= 256; ++s) {
            for (int symbol = 0; symbol < 256; ++symbol) {
                if (size[symbol] == s) symbols[filled++] = static_cast<uint8_t>(symbol);
            }
        }
        int index = 0;
        uint32_t next_code = 0;
        for (int bits = 1; bits <= 16; ++bits, next_code <<= 1) {
            lengths[bits] = static_cast<uint8_t>(of_size[bits]);
            for (int i = 0; i < of_size[bits]; ++i, ++next_code) {
                const uint8_t symbol = symbols[index++];
                code[symbol] = next_code << 8 | static_cast<uint32_t>(bits);
            }
        }
    }

    int codes() const {
        int sum = 0;
        for (int bits = 1; bits <= 16; ++bits) sum += lengths[bits];
        return sum;
    }
};

// Writes bits, each byte of ones followed by a zero byte.
class BitWriter {
  public:
    explicit BitWriter(uint8_t *out) : out_(out) {}

    // At most 27 bits.
    void put(uint32_t bits, int count) {
        bits_ = bits_ << count | bits;
        count_ += count;
        if (count_ >= 32) write_word();
    }

    // Fills the last byte with ones; the next bits begin a byte.
    uint8_t *finish() {
        if (count_ % 8) put((1u << (8 - count_ % 8)) - 1, 8 - count_ % 8);
        while (count_ > 0) write_byte(static_cast<uint8_t>(bits_ >> (count_ -= 8)));
        return out_;
    }

    void marker(uint8_t code) {
        *out_++ = 0xFF;
        *out_++ = code;
    }

  private:
    void write_byte(uint8_t byte) {
        *out_++ = byte;
        if (byte == 0xFF) *out_++ = 0;
    }

    void write_word() {
        count_ -= 32;
        const auto word = static_cast<uint32_t>(bits_ >> count_);
        const bool has_ones = (word & 0x80808080u & ~(word + 0x01010101u)) != 0;
        if (has_ones) {
            for (int shift = 24; shift >= 0; shift -= 8) {
                write_byte(static_cast<uint8_t>(word >> shift));
            }
        } else {
            for (int shift = 24; shift >= 0; shift -= 8) {
                *out_++ = static_cast<uint8_t>(word >> shift);
            }
        }
    }

    uint8_t *out_;
    uint64_t bits_ = 0;
    int count_ = 0;
};

struct Block {
    const HuffmanLookup *dc;
    const HuffmanLookup *ac;
    int component;  // place in the scan
    uint32_t table;  // 0 or 2: of the codes that are written
};

[[noreturn]] void damaged(const char *what) {
    throw DecodeError(std::string("Corrupt JPEG data: ") + what);
}

thread_local std::vector<uint8_t> thread_run;
thread_local std::vector<uint32_t> thread_symbols;

class Recoder {
  public:
    Recoder(const jpeg_decompress_struct *info, const JpegLayout &layout, const uint8_t *data,
            size_t size)
        : info_(info),
          layout_(layout),
          data_(data),
          size_(size),
          at_(layout.coded),
          run_(thread_run),
          symbols_(thread_symbols) {}

    bool prepare();
    Recoded read(int interval);
    void write(int interval, std::vector<uint8_t> &out);

  private:
    size_t unstuff(bool last, int number);
    void write_headers(int interval, std::vector<uint8_t> &out) const;

    const jpeg_decompress_struct *info_;
    const JpegLayout &layout_;
    const uint8_t *data_;
    size_t size_;
    size_t at_;
    int marker_ = 0;  // behind the bytes that were taken last
    HuffmanLookup dc_[4], ac_[4];
    std::vector<Block> blocks_;  // of an MCU
    // Kept by the thread: fresh pages for every image would cost a tenth of the time.
    std::vector<uint8_t> &run_;
    std::vector<uint32_t> &symbols_;
    std::vector<size_t> ends_;  // of each run that is written, within symbols_
    // DC and AC of tables 0, then of tables 1.
    uint32_t counts_[4 * 256] = {};
    CodeTable tables_[4];
    uint32_t codes_[4 * 256] = {};
};

bool Recoder::prepare() {
    bool known_dc[4] = {}, known_ac[4] = {};
    for (int c = 0; c < info_->comps_in_scan; ++c) {
        const jpeg_component_info *component = info_->cur_comp_info[c];
        const int dc = component->dc_tbl_no, ac = component->ac_tbl_no;
        const JHUFF_TBL *dc_table = info_->dc_huff_tbl_ptrs[dc];
        const JHUFF_TBL *ac_table = info_->ac_huff_tbl_ptrs[ac];
        if (!dc_table || !ac_table) return false;
        if (!known_dc[dc] && !dc_[dc].build(dc_table->bits, dc_table->huffval, true)) return false;
        if (!known_ac[ac] && !ac_[ac].build(ac_table->bits, ac_table->huffval, false)) return false;
        known_dc[dc] = known_ac[ac] = true;
        const int count = info_->comps_in_scan == 1
                              ? 1
                              : component->h_samp_factor * component->v_samp_factor;
        const Block block{&dc_[dc], &ac_[ac], c, c == 1 || c == 2 ? 2u : 0u};
        blocks_.insert(blocks_.end(), static_cast<size_t>(count), block);
    }
    const size_t room = size_ - at_ + BlockReader::kPadding;
    if (run_.size() < room) run_.resize(room);
    return true;
}

// Takes the next run's bytes without stuffing into run_, and goes past the marker behind it.
size_t Recoder::unstuff(bool last, int number) {
    uint8_t *out = run_.data();
    for (marker_ = 0; marker_ == 0;) {
        const void *found = std::memchr(data_ + at_, 0xFF, size_ - at_);
        if (!found) damaged("premature end of the image");
        const auto end = static_cast<size_t>(static_cast<const uint8_t *>(found) - data_);
        size_t after = end + 1;
        while (after < size_ && data_[after] == 0xFF) ++after;
        if (after == size_) damaged("premature end of the image");
        marker_ = data_[after];
        if (marker_ == 0 && after > end + 1) damaged("fill bytes within the data");
        const size_t count = end - at_ + (marker_ == 0);  // 0xff00 is a data byte, 0xff
        std::memcpy(out, data_ + at_, count);
        out += count;
        at_ = after + 1;
        if (marker_ != 0 && !last && marker_ != 0xD0 + number % 8) {
            damaged("a restart marker is missing");
        }
    }
    return static_cast<size_t>(out - run_.data());
}

// Reads all symbols and counts them.
Recoded Recoder::read(int interval) {
    const int64_t mcus = int64_t{layout_.mcus_per_row} * layout_.mcu_rows;
    const int64_t source_interval = layout_.restart_interval ? layout_.restart_interval : mcus;
    if (symbols_.size() < 2 * size_) symbols_.resize(2 * size_);
    uint32_t *out = symbols_.data();
    BlockReader reader;
    uint32_t dc[4];
    int previous[4];
    int64_t run_end = 0;
    int number = 0;
    for (int64_t mcu = 0; mcu < mcus; ++mcu) {
        if (mcu == run_end) {
            if (mcu > 0 && reader.has_more()) damaged("extraneous bytes before a marker");
            run_end = std::min(mcu + source_interval, mcus);
            const size_t length = unstuff(run_end == mcus, number++);
            reader.start(run_.data(), length);
            std::fill(std::begin(dc), std::end(dc), 0);
        }
        if (mcu % interval == 0) {
            if (mcu > 0) ends_.push_back(static_cast<size_t>(out - symbols_.data()));
            std::fill(std::begin(previous), std::end(previous), 0);
        }
        const auto used = static_cast<size_t>(out - symbols_.data());
        if (symbols_.size() - used < blocks_.size() * BlockReader::kMaxSymbols) {
            symbols_.resize(2 * symbols_.size());
            out = symbols_.data() + used;
        }
        for (const Block &block : blocks_) {
            out = reader.read_symbols(*block.dc, *block.ac, block.table, out, counts_,
                                      dc[block.component], previous[block.component]);
            if (!out) damaged("bad Huffman code");
        }
        if (reader.overran()) damaged("premature end of data segment");
    }
    if (reader.has_more()) damaged("extraneous bytes before a marker");
    if (marker_ != 0xD9) return Recoded::kNotThisWay;
    ends_.push_back(static_cast<size_t>(out - symbols_.data()));
    for (int i = 0; i < 4 * 256; ++i) {
        const bool ac = (i / 256) % 2;
        if (counts_[i] && (ac ? (i & 15) > kMaxAcBits : (i & 255) > kMaxDcBits)) {
            return Recoded::kCoefficientRange;
        }
    }
    return Recoded::kDone;
}

void put_segment(std::vector<uint8_t> &out, uint8_t marker, const std::vector<uint8_t> &content) {
    const size_t length = content.size() + 2;
    out.insert(out.end(), {0xFF, marker, uint8_t(length >> 8), uint8_t(length)});
    out.insert(out.end(), content.begin(), content.end());
}

void Recoder::write_headers(int interval, std::vector<uint8_t> &out) const {
    // natural position of the k-th coefficient in zigzag order
    static constexpr uint8_t kZigzag[64] = {
        0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
        41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
        30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};
    bool written[4] = {};
    for (int c = 0; c < info_->num_components; ++c) {
        const int number = info_->comp_info[c].quant_tbl_no;
        if (written[number]) continue;
        written[number] = true;
        std::vector<uint8_t> table{uint8_t(number)};
        for (uint8_t at : kZigzag) {
            table.push_back(uint8_t(info_->quant_tbl_ptrs[number]->quantval[at]));
        }
        put_segment(out, 0xDB, table);
    }
    std::vector<uint8_t> frame{8, uint8_t(layout_.height >> 8), uint8_t(layout_.height),
                               uint8_t(layout_.width >> 8), uint8_t(layout_.width),
                               uint8_t(info_->num_components)};
    for (int c = 0; c < info_->num_components; ++c) {
        const jpeg_component_info &component = info_->comp_info[c];
        frame.insert(frame.end(),
                     {uint8_t(component.component_id),
                      uint8_t(component.h_samp_factor << 4 | component.v_samp_factor),
                      uint8_t(component.quant_tbl_no)});
    }
    put_segment(out, 0xC0, frame);
    for (int table = 0; table < 4; ++table) {
        const CodeTable &codes = tables_[table];
        if (codes.codes() == 0) continue;
        std::vector<uint8_t> content{uint8_t((table & 1) << 4 | table >> 1)};
        content.insert(content.end(), codes.lengths + 1, codes.lengths + 17);
        content.insert(content.end(), codes.symbols, codes.symbols + codes.codes());
        put_segment(out, 0xC4, content);
    }
    put_segment(out, 0xDD, {uint8_t(interval >> 8), uint8_t(interval)});
    std::vector<uint8_t> scan{uint8_t(info_->comps_in_scan)};
    for (int c = 0; c < info_->comps_in_scan; ++c) {
        const int tables = c == 1 || c == 2;
        scan.insert(scan.end(),
                    {uint8_t(info_->cur_comp_info[c]->component_id), uint8_t(tables * 0x11)});
    }
    scan.insert(scan.end(), {0, 63, 0});
    put_segment(out, 0xDA, scan);
}

void Recoder::write(int interval, std::vector<uint8_t> &out) {
    uint64_t bits = 0;
    for (int table = 0; table < 4; ++table) {
        const uint32_t *counts = counts_ + 256 * table;
        if (std::all_of(counts, counts + 256, [](uint32_t n) { return n == 0; })) continue;
        tables_[table].build(counts, codes_ + 256 * table);
    }
    for (int i = 0; i < 4 * 256; ++i) {
        bits += uint64_t{counts_[i]} * ((codes_[i] & 0xFF) + (i & 15));
    }
    write_headers(interval, out);
    const size_t begin = out.size();
    // every byte may need stuffing; a run adds its last bits and a marker
    out.resize(begin + 2 * (bits / 8 + 1) + 4 * ends_.size() + 8);
    BitWriter writer(out.data() + begin);
    size_t at = 0;
    uint8_t *end = nullptr;
    for (size_t run = 0; run < ends_.size(); ++run) {
        for (; at < ends_[run]; ++at) {
            const uint32_t symbol = symbols_[at], code = codes_[symbol >> 16];
            const int size = symbol >> 16 & 15;
            writer.put(code >> 8 << size | (symbol & 0xFFFF), int(code & 0xFF) + size);
        }
        end = writer.finish();
        if (run + 1 < ends_.size()) writer.marker(uint8_t(0xD0 + run % 8));
    }
    out.resize(static_cast<size_t>(end - out.data()));
}

}  // namespace

Recoded recode_symbols(const jpeg_decompress_struct *info, const JpegLayout &layout,
                       const uint8_t *data, size_t size, int interval,
                       std::vector<uint8_t> &out) {
    Recoder recoder(info, layout, data, size);
    if (!recoder.prepare()) return Recoded::kNotThisWay;
    const Recoded outcome = recoder.read(interval);
    if (outcome == Recoded::kDone) recoder.write(interval, out);
    return outcome;
}

}  // namespace fastdata
