// The files of a model on this disk: one safetensors file, or shards with an index or without.
//
// A path may be a safetensors file, an index ("*.index.json": {"weight_map": {"TENSOR": "FILE", ...}}), or a folder,
// which is taken by its one index or, without any, as all its *.safetensors. Files are checked before anything is sent.
// Errors: those of the system and of safetensors.h; kInvalidArgument for a folder without a model or with several,
// kDataLoss for an index that does not fit its shards. They name the file.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "cli/models/push_protocol.h"

namespace fairlead::cli {

struct InputFile {
  std::string path;
  UniqueFd fd;
  ModelFile file;
  std::uint64_t size = 0;  // of the whole file
};

struct ModelFiles {
  std::vector<InputFile> files;
  std::vector<TensorEntry> entries;  // of all files, in order; FileTensor::offset counts from the file's first byte
  std::uint64_t bytes = 0;           // of all tensors
};

Result<ModelFiles> open_model(const std::string& path);

}  // namespace fairlead::cli
