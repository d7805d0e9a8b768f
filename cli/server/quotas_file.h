// A file of quotas (serve --quotas): a line for each principal, settings in any order: memory=8G (of its models),
// models=10, push=2G (bytes that it pushes at once), sessions=4. What is left out has no limit but the server's.
#pragma once

#include <string>
#include <string_view>

#include "cli/models/quota.h"
#include "fairlead/status.h"

namespace fairlead::cli {

/// Errors name the file, the line and what is legal.
Result<Quotas> load_quotas(const std::string& path);
/// The same of text, which `path` names in errors.
Result<Quotas> parse_quotas(std::string_view text, const std::string& path);

}  // namespace fairlead::cli
