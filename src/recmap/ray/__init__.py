"""Beyond one machine: conversion and reading on a Ray cluster."""
