#pragma once

// Makes a folder of a model whose matrices are packed (engine_core/weights/packed_file.h): loads
// the model and writes what its loader packs, beside the files that say the rest about it.
// Thread: main. Failure: a folder that is there already, a full disk, what is wrong with the model;
// UNIMPLEMENTED: an architecture whose loader reads what it does not pack. The folder is empty
// then. What a process that was ended has left is taken for an empty folder.

#include <cstdint>
#include <string>

#include "common/status.h"
#include "engine_core/models/weight_formats.h"
#include "engine_core/weights/model_config.h"
#include "kernels/backend.h"

namespace tandem {

struct PackModelOptions {
  std::string model;  // a folder or a GGUF file
  std::string out;    // the folder to make
  std::string load_format = "auto";
  std::string quantization = "auto";  // the flag that `formats` are of
  WeightFormats formats = {};
};

// Returns the bytes of the file of packed matrices.  REQUIRES: a CPU backend.
StatusOr<int64_t> PackModel(const PackModelOptions& options, const ModelConfig& config,
                            Backend* backend);

}  // namespace tandem
