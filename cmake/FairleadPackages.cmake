# Debian packages by CPack, one for each component of what is installed: scripts/package builds them.
#
#   libfairlead0       the library
#   libfairlead-dev    headers, CMake and pkg-config files, the library's development name
#   fairlead-tools     the program, the drop-in for unmodified verbs programs, the service, man pages, completions
#   fairlead-dpdk      packet ports over DPDK, where it was built
#   python3-fairlead   the Python module, where it was built

# fairlead_component(FOLDER): to which component goes what that folder installs.
function(fairlead_component folder)
  set(component tools)
  if(folder STREQUAL "include")
    set(component dev)
  elseif(folder STREQUAL "python")
    set(component python)
  elseif(folder STREQUAL "verbs/soft")
    set(component dpdk)
  endif()
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME ${component} PARENT_SCOPE)
endfunction()

# fairlead_packages(): after all folders.
function(fairlead_packages)
  if(NOT FAIRLEAD_INSTALL OR NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  add_custom_target(fairlead_packaged)  # what they hold, and nothing else
  foreach(target libfairlead fairlead fairlead_ibverbs fairlead_ibverbs_facade fairlead_dpdk fairlead_python fairlead_man)
    if(TARGET ${target})
      add_dependencies(fairlead_packaged ${target})
    endif()
  endforeach()
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME fairlead)
  set(CPACK_PACKAGE_VENDOR "The Fairlead authors")
  set(CPACK_PACKAGE_CONTACT "The Fairlead authors <fairlead@localhost>")
  set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "moves tensors between processes and hosts over RDMA, TCP or shared memory")
  set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
  get_cmake_property(defined COMPONENTS)
  set(CPACK_COMPONENTS_ALL)
  foreach(component library dev tools dpdk python)
    if(component IN_LIST defined)
      list(APPEND CPACK_COMPONENTS_ALL ${component})
    endif()
  endforeach()
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION net)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

  set(control ${PROJECT_SOURCE_DIR}/deploy/debian)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libfairlead${PROJECT_VERSION_MAJOR})
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libibverbs1, ibverbs-providers")
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${control}/triggers)
  set(CPACK_DEBIAN_DEV_PACKAGE_NAME libfairlead-dev)
  set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libfairlead${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}), libdlpack-dev")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME fairlead-tools)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "libibverbs1, ibverbs-providers")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "fairlead-dpdk, prometheus")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_CONTROL_EXTRA
    ${control}/tools/conffiles ${control}/tools/postinst ${control}/tools/prerm ${control}/tools/postrm ${control}/triggers)
  set(CPACK_DEBIAN_DPDK_PACKAGE_NAME fairlead-dpdk)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-fairlead)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
  if(TARGET fairlead_python)
    # Its module is for the minor version that it was built with.
    foreach(part MAJOR MINOR)
      get_directory_property(python_${part} DIRECTORY python DEFINITION Python_VERSION_${part})
    endforeach()
    math(EXPR next "${python_MINOR} + 1")
    set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "libfairlead${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}), \
python3 (>= ${python_MAJOR}.${python_MINOR}), python3 (<< ${python_MAJOR}.${next}), python3-numpy")
    set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${control}/python/postinst ${control}/python/prerm)
  endif()
  set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The library that programs link.")
  set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, and what CMake and pkg-config look for.")
  set(CPACK_COMPONENT_TOOLS_DESCRIPTION
    "The program fairlead with its server as a service of systemd, and libraries by which unmodified verbs programs run on\n softroce, the RoCE v2 device in user space.")
  set(CPACK_COMPONENT_DPDK_DESCRIPTION "Packet ports of softroce over DPDK.")
  set(CPACK_COMPONENT_PYTHON_DESCRIPTION "The Python module.")
  include(CPack)  # what it reads are variables of this function
endfunction()
