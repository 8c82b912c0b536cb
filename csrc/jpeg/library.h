// The libjpeg-turbo that the core is linked with.
#pragma once

#include <string>

namespace fastdata {

// Returns its version, for example "3.1.0". Throws std::runtime_error if the library that was
// loaded does not fit the header that the core was compiled with.
std::string libjpeg_turbo_version();

}  // namespace fastdata
