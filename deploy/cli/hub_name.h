#pragma once

// How a model of a hub is named: org/name, org/name:REVISION, org/name:Q4_K_M; the oldest models of
// Hugging Face's also without an organisation: gpt2. Pure; any thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct HubName {
  std::string repository;  // "org/name" or "name"
  std::string revision;    // a branch, tag or commit; "" where none is named
  std::string quant;       // of GGUF files, as in their names; "" where none is named
};

// nullopt: a path, or not of that form. What follows the colon is a quant where it looks like one
// (Q4_K_M, IQ4_XS, UD-Q5_K_XL, BF16, MXFP4 …, in any case), else a revision.
std::optional<HubName> ParseHubName(std::string_view name);

// A revision that can be part of a path and of a URL.
bool IsRevision(std::string_view revision);

// 40 hexadecimal digits.
bool IsCommit(std::string_view revision);

// Of a GGUF file's path: whether it is a model's (no projector, no imatrix) of that quant, as in
// name-Q4_K_M.gguf, q4_k_m/name.gguf is none. "" fits any.
bool IsGgufOf(std::string_view path, std::string_view quant);

// NAME-00002-of-00003.gguf in parts; nullopt for a file that is whole.
struct GgufPart {
  std::string stem;  // NAME
  int index = 0;     // from 1
  int count = 0;
};
std::optional<GgufPart> ParseGgufPart(std::string_view path);

// The quant in a GGUF file's name: "Q4_K_M", "" where there is none.
std::string QuantOf(std::string_view path);

// Of files the models of a quant (any: ""), each by its first part, in order. UD-Q4_K_M is one of
// Q4_K_M, but only where no other is.
std::vector<std::string> GgufFilesOf(std::vector<std::string> paths, std::string_view quant);

}  // namespace tandem
