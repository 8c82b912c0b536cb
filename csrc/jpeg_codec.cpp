#include "jpeg_codec.h"

#include <cstring>

#include <jerror.h>

namespace fastdata {
namespace {

[[noreturn]] void jump(j_common_ptr info) {
    auto *errors = reinterpret_cast<JpegErrorManager *>(info->err);
    errors->base.format_message(info, errors->text);
    std::longjmp(errors->on_error, 1);
}

void refuse_warnings(j_common_ptr info, int level) {
    if (level < 0) jump(info);
}

void no_output(j_common_ptr) {}

void no_source(j_decompress_ptr) {}

[[noreturn]] boolean out_of_data(j_decompress_ptr info) {
    info->err->msg_code = JERR_INPUT_EOF;
    jump(reinterpret_cast<j_common_ptr>(info));
}

void skip_data(j_decompress_ptr info, long bytes) {
    if (bytes <= 0) return;
    if (static_cast<size_t>(bytes) > info->src->bytes_in_buffer) out_of_data(info);
    info->src->next_input_byte += bytes;
    info->src->bytes_in_buffer -= bytes;
}

void create(jpeg_decompress_struct *info) { jpeg_create_decompress(info); }
void create(jpeg_compress_struct *info) { jpeg_create_compress(info); }
void destroy(jpeg_decompress_struct *info) { jpeg_destroy_decompress(info); }
void destroy(jpeg_compress_struct *info) { jpeg_destroy_compress(info); }

}  // namespace

jpeg_error_mgr *JpegErrorManager::install() {
    jpeg_std_error(&base);
    base.error_exit = jump;
    base.emit_message = refuse_warnings;
    base.output_message = no_output;
    text[0] = 0;
    return &base;
}

template <typename Info>
JpegCodec<Info>::JpegCodec() {
    std::memset(&info_, 0, sizeof info_);
    info_.err = errors_.install();
    try {
        call([](Info *info) { create(info); });
    } catch (...) {
        destroy(&info_);
        throw;
    }
}

template <typename Info>
JpegCodec<Info>::~JpegCodec() {
    destroy(&info_);
}

template class JpegCodec<jpeg_decompress_struct>;
template class JpegCodec<jpeg_compress_struct>;

void JpegSource::install(jpeg_decompress_struct *info, const uint8_t *data, size_t size) {
    base_.next_input_byte = data;
    base_.bytes_in_buffer = size;
    base_.init_source = no_source;
    base_.fill_input_buffer = out_of_data;
    base_.skip_input_data = skip_data;
    base_.resync_to_restart = jpeg_resync_to_restart;
    base_.term_source = no_source;
    info->src = &base_;
}

}  // namespace fastdata
