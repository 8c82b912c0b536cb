#include "jpeg/symbols.h"

#include <algorithm>
#include <cstring>

#include "jpeg/coded.h"
#include "jpeg/codes.h"
#include "jpeg/streams.h"
#include "jpeg/zigzag.h"

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

// Of the codes that are written, luma and chroma have a table each, DC and AC beside each other.
uint32_t table_of(int component) { return component == 1 || component == 2 ? 2 : 0; }

// A block as it is written: a symbol stands in the bits from 16 on, above it the table, plus one
// for AC, and below it the value's bits, whose number is in the symbol's low four bits.
class SymbolWriter {
  public:
    // `counts` counts what is in the upper half; `previous` is what the DC is a difference to.
    SymbolWriter(uint32_t table, uint32_t *out, uint32_t *counts, int previous)
        : out_(out), counts_(counts), table_(table << 24), previous_(previous) {}

    void dc(int value) {
        put(0, value - previous_);
        previous_ = value;
        table_ += 1u << 24;
    }

    // An entry of `run` zeros and the k-th coefficient.
    void ac(int k, int run, int value) {
        if (value != 0) {
            if (k < 64) put(run, value);
        } else if (k < 63) {
            put_symbol(0xF0, 0);  // sixteen zeros
        } else {
            // zeros up to the end need no counting
            for (; out_[-1] == (table_ | 0xF00000); --out_) --counts_[table_ >> 16 | 0xF0];
            put_symbol(0, 0);
        }
    }

    uint32_t *end() const { return out_; }
    int previous() const { return previous_; }

  private:
    void put_symbol(uint32_t symbol, uint32_t bits) {
        ++counts_[table_ >> 16 | symbol];
        *out_++ = table_ | symbol << 16 | bits;
    }

    void put(int run, int value) {
        const auto sign = static_cast<uint32_t>(value >> 31);
        const uint32_t magnitude = (static_cast<uint32_t>(value) ^ sign) - sign;
        const auto size = static_cast<uint32_t>(magnitude ? 32 - __builtin_clz(magnitude) : 0);
        const uint32_t bits = (static_cast<uint32_t>(value) + sign) & ((1u << size) - 1);
        put_symbol(static_cast<uint32_t>(run) << 4 | size, bits & 0xFFFF);
    }

    uint32_t *out_;
    uint32_t *counts_;
    uint32_t table_;  // in its place
    int previous_;
};

constexpr size_t kMaxSymbols = 65;  // of a block

// Reads the stream's next block and writes it to `out`, where kMaxSymbols must fit. Returns the end
// of what it wrote. A coefficient after the last, for which libjpeg knows a place, is not written
// but noted. Throws DecodeError for a code that does not exist.
uint32_t *read_symbols(RunStream &stream, const McuCodes::Block &block, uint32_t *out,
                       uint32_t *counts, int &previous, bool &too_many) {
    SymbolWriter writer(table_of(block.component), out, counts, previous);
    BitPlace in = stream.place;
    const auto take = [&](const HuffmanLookup &table, int &value) {
        in.refill(stream.cap);
        uint32_t found = in.look(table);
        if (found & entry::kMore) found = in.take_more(table, found);
        value = entry::value(found);
        if (found != entry::kNone) in.drop(found);
        return found;
    };
    int value;
    if (take(*block.dc, value) == entry::kNone) throw_corrupt("bad Huffman code");
    uint32_t &dc = stream.dc[block.component];
    dc += static_cast<uint32_t>(value);
    writer.dc(static_cast<int16_t>(dc));
    int k = 1;
    while (k <= 63) {
        const uint32_t found = take(*block.ac, value);
        if (found == entry::kNone) throw_corrupt("bad Huffman code");
        const auto passes = static_cast<int>(entry::passes(found));
        k += passes;
        writer.ac(k - 1, passes - 1, value);
    }
    if (k > 64 && value != 0) too_many = true;
    stream.place = in;
    previous = writer.previous();
    return writer.end();
}

constexpr size_t kKept = size_t{128} << 20;  // bytes that a thread keeps from image to image

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
          run_(thread_run),
          symbols_(thread_symbols) {}
    ~Recoder() {
        if (run_.size() > kKept) run_ = {};
        if (symbols_.size() > kKept / sizeof symbols_[0]) symbols_ = {};
    }
    Recoder(const Recoder &) = delete;
    Recoder &operator=(const Recoder &) = delete;

    bool prepare();
    Recoded read(int interval);
    void write(int interval, std::vector<uint8_t> &out);
    bool left_over() const { return left_over_; }

  private:
    void write_headers(int interval, std::vector<uint8_t> &out) const;

    const jpeg_decompress_struct *info_;
    const JpegLayout &layout_;
    const uint8_t *data_;
    size_t size_;
    CodedRuns coded_;
    bool left_over_ = false;
    ScanCodes source_;
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
    if (!source_.read(info_)) return false;
    const size_t room = size_ - layout_.coded + BitPlace::kPadding;
    if (run_.size() < room) run_.resize(room);
    return true;
}

// Reads all symbols and counts them.
Recoded Recoder::read(int interval) {
    const int64_t mcus = int64_t{layout_.mcus_per_row} * layout_.mcu_rows;
    const int64_t source_interval = layout_.restart_interval ? layout_.restart_interval : mcus;
    coded_.start(data_, size_, layout_.coded, (mcus - 1) / source_interval + 1);
    // about two to a byte, and no more than coefficients, however long the file is beside its scan
    const size_t most = static_cast<size_t>(mcus) * source_.mcu().blocks * DCTSIZE2;
    const size_t guess = std::min(2 * (size_ - layout_.coded), most);
    if (symbols_.size() < guess) symbols_.resize(guess);
    uint32_t *out = symbols_.data();
    RunStream stream;
    int previous[4];
    int64_t run_end = 0;
    bool too_many = false;
    for (int64_t mcu = 0; mcu < mcus; ++mcu) {
        if (mcu == run_end) {
            if (mcu > 0 && stream.has_more()) left_over_ = true;
            run_end = std::min(mcu + source_interval, mcus);
            uint8_t *end = coded_.pass(run_.data());
            std::memset(end, 0, BitPlace::kPadding);
            stream.start(run_.data(), static_cast<size_t>(end - run_.data()));
        }
        if (mcu % interval == 0) {
            if (mcu > 0) ends_.push_back(static_cast<size_t>(out - symbols_.data()));
            std::fill(std::begin(previous), std::end(previous), 0);
        }
        const auto used = static_cast<size_t>(out - symbols_.data());
        const size_t needed = used + source_.mcu().blocks * kMaxSymbols;
        if (symbols_.size() < needed) {
            symbols_.resize(std::max(2 * symbols_.size(), needed));
            out = symbols_.data() + used;
        }
        for (int b = 0; b < source_.mcu().blocks; ++b) {
            const McuCodes::Block &block = source_.mcu().block[b];
            out = read_symbols(stream, block, out, counts_, previous[block.component], too_many);
        }
        if (stream.overran()) throw_corrupt("premature end of data segment");
    }
    if (stream.has_more()) left_over_ = true;
    if (too_many || (coded_.marker() != kEoi && coded_.marker() != kCut)) {
        return Recoded::kNotThisWay;
    }
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
    bool written[4] = {};
    for (int c = 0; c < info_->num_components; ++c) {
        const int number = info_->comp_info[c].quant_tbl_no;
        if (written[number]) continue;
        written[number] = true;
        std::vector<uint8_t> table{uint8_t(number)};
        for (uint8_t at : kZigzag.at) {
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
                       const uint8_t *data, size_t size, int interval, std::vector<uint8_t> &out,
                       bool &left_over) {
    Recoder recoder(info, layout, data, size);
    if (!recoder.prepare()) return Recoded::kNotThisWay;
    const Recoded outcome = recoder.read(interval);
    if (outcome == Recoded::kDone) recoder.write(interval, out);
    left_over = recoder.left_over();
    return outcome;
}

}  // namespace fastdata
