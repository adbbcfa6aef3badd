#pragma once

// Which files of a model are needed, of all that its repository has: what describes it, its
// tokenizer and templates, and its weights once: safetensors, or GGUF files of one quant; never
// .bin, .pt, .onnx and other copies. Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "deploy/cli/hub/hub_listing.h"

namespace tandem {

struct FileChoice {
  std::vector<HubFile> files;  // to get first
  std::string shard_index;     // of `files`, the one that names the weights; "" where there is none
  std::string gguf;            // of `files`, the GGUF file to open; "" for a folder
  std::string note = {};       // what the user should know of the choice
};

// quant: of GGUF files, "" for safetensors, and where there are none Q4_K_M, else Q8_0, else the
// first GGUF file. NOT_FOUND names the quants there are, or what is there instead of weights.
StatusOr<FileChoice> ChooseFiles(const HubListing& listing, const std::string& quant);

// All but weights: for a tokenizer.
std::vector<HubFile> ChooseDescription(const HubListing& listing);

// The files that the index names. DATA_LOSS: it is no such index, or names what is not listed.
StatusOr<std::vector<HubFile>> ChooseShards(const HubListing& listing, std::string_view index);

}  // namespace tandem
