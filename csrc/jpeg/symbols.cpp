#include "jpeg/symbols.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "jpeg/code_table.h"
#include "jpeg/huffman.h"
#include "jpeg/scan.h"
#include "jpeg/segments.h"
#include "jpeg/streams.h"

namespace fastdata {
namespace {

constexpr int kMaxAcBits = 10, kMaxDcBits = 11;  // ITU-T T.81, F.1.2, for 8-bit samples

// Writes bits, and a zero byte after each byte of ones, as the format demands.
class BitWriter {
  public:
    explicit BitWriter(uint8_t *out) : out_(out) {}

    // At most 27 bits: a code of 16 with a value of 11. With up to 31 waiting, 64 hold both.
    void put(uint32_t bits, int count) {
        bits_ = bits_ << count | bits;
        count_ += count;
        if (count_ >= 32) write_word();
    }

    // Fills the last byte with ones, so that the next bits begin a byte.
    uint8_t *finish() {
        if (count_ % 8) put((1u << (8 - count_ % 8)) - 1, 8 - count_ % 8);
        while (count_ > 0) write_byte(static_cast<uint8_t>(bits_ >> (count_ -= 8)));
        return out_;
    }

    // The marker after a run, which finish() must have ended.
    void restart(size_t run) {
        *out_++ = 0xFF;
        *out_++ = static_cast<uint8_t>(kRst0 + run % 8);
    }

  private:
    void write_byte(uint8_t byte) {
        *out_++ = byte;
        if (byte == 0xFF) *out_++ = 0;
    }

    void write_word() {
        count_ -= 32;
        const auto word = static_cast<uint32_t>(bits_ >> count_);
        // The top bit of a byte is set and adding one clears it: only a byte of ones does that, or
        // one that a neighbour's carry reaches, which then takes the slow way for nothing.
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

// Luma and chroma are written with codes of their own. The number of a table is even for DC, and
// the odd one after it is for AC.
constexpr int kTables = 4;
uint32_t table_of(int component) { return component == 1 || component == 2 ? 2 : 0; }

// Notes the symbols of a block as they are going to be written, one in 32 bits: the table's number
// from bit 24 on, the symbol from bit 16 on, and below it the value's bits, as many as the symbol's
// low four bits say.
class SymbolWriter {
  public:
    // `counts` is indexed by the upper half; `previous` is the value that DC is a difference to.
    SymbolWriter(uint32_t table, uint32_t *out, uint32_t *counts, int previous)
        : out_(out), counts_(counts), table_(table << 24), previous_(previous) {}

    void dc(int value) {
        put(0, value - previous_);
        previous_ = value;
        table_ += 1u << 24;
    }

    // `run` zeros and then the k-th coefficient.
    void ac(int k, int run, int value) {
        if (value != 0) {
            if (k < 64) put(run, value);
        } else if (k < 63) {
            put_symbol(0xF0, 0);  // sixteen zeros
        } else {
            // An end of block covers zeros that the file spelled out before it.
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
    uint32_t table_;  // shifted to its bits
    int previous_;
};

constexpr size_t kMaxSymbols = 65;  // in a block

// Reads the stream's next block and notes its symbols in `out`, which must have room for
// kMaxSymbols. Returns the end of what it wrote. Sets `too_many` for a coefficient past the 63rd,
// for which only libjpeg finds a place. Throws DecodeError for a code that does not exist.
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
        const auto advance = static_cast<int>(entry::advance(found));
        k += advance;
        writer.ac(k - 1, advance - 1, value);
    }
    if (k > 64 && value != 0) too_many = true;
    stream.place = in;
    previous = writer.previous();
    return writer.end();
}

constexpr size_t kKept = size_t{128} << 20;  // larger buffers are not kept for the next image

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
    // The thread's: fresh pages for every image would take a tenth of the time.
    std::vector<uint8_t> &run_;
    std::vector<uint32_t> &symbols_;
    std::vector<size_t> ends_;  // of the runs to write, within symbols_
    // By table number and symbol.
    uint32_t counts_[kTables * 256] = {};
    uint32_t codes_[kTables * 256] = {};  // as CodeTable::build sets them
    CodeTable tables_[kTables];
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
    // Two to a byte are typical; never more than coefficients, however much else the file holds.
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
            uint8_t *end = coded_.take(run_.data());
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
    for (int i = 0; i < kTables * 256; ++i) {
        const bool ac = (i / 256) % 2;
        if (counts_[i] && (ac ? (i & 15) > kMaxAcBits : (i & 255) > kMaxDcBits)) {
            return Recoded::kCoefficientRange;
        }
    }
    return Recoded::kDone;
}

void append(std::vector<uint8_t> &out, std::initializer_list<int> bytes) {
    for (int byte : bytes) out.push_back(static_cast<uint8_t>(byte));
}

void append_segment(std::vector<uint8_t> &out, Marker marker, const std::vector<uint8_t> &body) {
    const auto length = static_cast<int>(body.size() + 2);
    append(out, {0xFF, marker, length >> 8, length});
    out.insert(out.end(), body.begin(), body.end());
}

void Recoder::write_headers(int interval, std::vector<uint8_t> &out) const {
    std::vector<uint8_t> body;
    bool written[NUM_QUANT_TBLS] = {};
    for (int c = 0; c < info_->num_components; ++c) {
        const int number = info_->comp_info[c].quant_tbl_no;
        if (written[number]) continue;
        written[number] = true;
        body.clear();
        append(body, {number});
        for (uint8_t at : kZigzag.at) append(body, {info_->quant_tbl_ptrs[number]->quantval[at]});
        append_segment(out, kDqt, body);
    }
    body.clear();
    append(body, {8, layout_.height >> 8, layout_.height, layout_.width >> 8, layout_.width,
                  info_->num_components});
    for (int c = 0; c < info_->num_components; ++c) {
        const jpeg_component_info &component = info_->comp_info[c];
        append(body, {component.component_id,
                      component.h_samp_factor << 4 | component.v_samp_factor,
                      component.quant_tbl_no});
    }
    append_segment(out, kSof0, body);
    for (int table = 0; table < kTables; ++table) {
        const CodeTable &codes = tables_[table];
        if (codes.codes() == 0) continue;
        body.clear();
        append(body, {(table & 1) << 4 | table >> 1});
        body.insert(body.end(), codes.lengths + 1, codes.lengths + 17);
        body.insert(body.end(), codes.symbols, codes.symbols + codes.codes());
        append_segment(out, kDht, body);
    }
    body.clear();
    append(body, {interval >> 8, interval});
    append_segment(out, kDri, body);
    body.clear();
    append(body, {info_->comps_in_scan});
    for (int c = 0; c < info_->comps_in_scan; ++c) {
        const auto number = static_cast<int>(table_of(c) / 2);  // the same for DC and AC
        append(body, {info_->cur_comp_info[c]->component_id, number * 0x11});
    }
    append(body, {0, 63, 0});
    append_segment(out, kSos, body);
}

void Recoder::write(int interval, std::vector<uint8_t> &out) {
    uint64_t bits = 0;
    for (int table = 0; table < kTables; ++table) {
        const uint32_t *counts = counts_ + 256 * table;
        if (std::all_of(counts, counts + 256, [](uint32_t n) { return n == 0; })) continue;
        tables_[table].build(counts, codes_ + 256 * table);
    }
    for (int i = 0; i < kTables * 256; ++i) {
        bits += uint64_t{counts_[i]} * ((codes_[i] & 0xFF) + (i & 15));
    }
    write_headers(interval, out);
    const size_t begin = out.size();
    // Every byte may need stuffing, and each run adds its last bits and a marker.
    out.resize(begin + 2 * (bits / 8 + 1) + 4 * ends_.size() + 8);
    BitWriter writer(out.data() + begin);
    size_t at = 0;
    uint8_t *end = nullptr;
    for (size_t run = 0; run < ends_.size(); ++run) {
        for (; at < ends_[run]; ++at) {
            const uint32_t symbol = symbols_[at], code = codes_[symbol >> 16];
            const int size = symbol >> 16 & 15;
            writer.put(code >> 8 << size | (symbol & 0xFFFF),
                       static_cast<int>(code & 0xFF) + size);
        }
        end = writer.finish();
        if (run + 1 < ends_.size()) writer.restart(run);
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
